"""fsync: content and names that survive a power cut."""

from __future__ import annotations

import errno
import os
import sys

if sys.platform == "darwin":
    import fcntl


def start_writing(fd: int, offset: int = 0, size: int = 0) -> None:
    """Let the device begin; `sync_file` waits for it. Pages that are not written yet are not dropped by this."""
    if sys.platform == "linux":
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


def sync_directory(dir_fd: int) -> None:
    """The names in a directory. Also for a descriptor that only holds a place (`directories.PLACE`)."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        sync_file(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system whose directories cannot be synced
            raise
    finally:
        os.close(fd)
