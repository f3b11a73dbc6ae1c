"""Writing all of it, and knowing that it is on the device."""

from __future__ import annotations

import errno
import os
import sys
from io import FileIO

from perdure.platform.fault_points import shortened

if sys.platform != "win32":
    import fcntl


def write_all(fd: int, data: bytes | memoryview, name: str) -> None:
    """Write every byte; a short write goes on where it stopped. `name` is the fault point to pass."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(fd, rest[: shortened(name, len(rest))]) :]


def start_writing(fd: int, offset: int = 0, size: int = 0) -> None:
    """Let the device begin; `sync_file` waits for it. Pages that are not written yet are not dropped by this."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, offset, size, os.POSIX_FADV_DONTNEED)


def sync_file(fd: int) -> None:
    """Content and metadata of a file on the device itself, not only in its cache."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
    os.fsync(fd)


def close_quietly(file: int | FileIO) -> None:
    """Close what was read, or only held a place. Its error tells of no loss, and must not undo what is done."""
    try:
        if isinstance(file, int):
            os.close(file)
        else:
            file.close()
    except OSError:
        pass


def sync_directory(dir_fd: int) -> None:
    """The names in a directory. Also for a descriptor that only holds a place (O_PATH)."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        sync_file(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system whose directories cannot be synced
            raise
    finally:
        os.close(fd)
