"""Reading a registry's file. Nothing of what it takes to change one: a host only reads."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from perdure.platform import directories
from perdure.registry.errors import Forbidden, RegistryUnavailable, Unreadable

MAX_BYTES: Final = 8 * 1024 * 1024
WAIT_S: Final = 30.0
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def read_bytes(path: str) -> bytes | None:
    """What is in a regular file; None where there is none. Raises Unreadable for anything else."""
    fd = opened(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise refused(error, os.path.basename(path)) from None


def opened(path: str) -> int | None:
    """A descriptor of a regular file of a size that makes sense; None where there is no file."""
    name = os.path.basename(path)
    try:
        fd = directories.open(path, os.O_RDONLY | directories.NONBLOCK)  # without waiting for a pipe's writer
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(error, name) from None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_size <= MAX_BYTES:
        return fd
    os.close(fd)
    is_large = stat.S_ISREG(info.st_mode)
    raise Unreadable(f"{name} is larger than {MAX_BYTES} bytes" if is_large else f"{name} is not a file")


def refused(error: OSError, name: str) -> Forbidden | RegistryUnavailable | Unreadable:
    if error.errno in _FORBIDDEN:
        return Forbidden(f"{name}: {error.strerror}", hint="check its permissions")
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
        return Unreadable(f"{name} is not a file")
    return RegistryUnavailable(f"{name}: {error.strerror or 'input or output failed'}")
