"""All of one file into another, with shared blocks where the file system can."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

from perdure.platform.fault_points import point
from perdure.storage.digest import CHUNK
from perdure.storage.files.fsync import write_all

if sys.platform != "win32":
    import fcntl

_FICLONE: Final = 0x40049409
CANNOT: Final = (
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.ENOTTY,
    errno.EBADF,
    errno.EPERM,
)
"""What a file system says that has no such operation."""


def copy_file(source: int, target: int, name: str) -> None:
    """Shared blocks, else copied by the kernel, else by us. `name` is the fault point of each piece."""
    if sys.platform.startswith("linux"):
        try:
            fcntl.ioctl(target, _FICLONE, source)
            return
        except OSError as error:
            if error.errno not in CANNOT:
                raise
    offset = _copy_in_kernel(source, target, name)
    while piece := os.pread(source, CHUNK, offset):
        os.lseek(target, offset, os.SEEK_SET)
        write_all(target, piece, name)
        offset += len(piece)


def _copy_in_kernel(source: int, target: int, name: str) -> int:
    """How far it came; the rest, or all of it, is left to an ordinary copy."""
    offset = 0
    if not sys.platform.startswith("linux"):
        return offset
    try:
        while True:
            point(name)
            done = os.copy_file_range(source, target, CHUNK, offset, offset)
            if done == 0:
                return offset
            offset += done
    except OSError as error:
        if error.errno not in CANNOT:
            raise
    return offset
