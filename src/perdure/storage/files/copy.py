"""All of one file into another, with shared blocks where the file system can."""

from __future__ import annotations

import errno
import os
from typing import Final

from perdure.platform import files
from perdure.platform.descriptors import pread
from perdure.platform.fault_points import point
from perdure.storage.digest import CHUNK
from perdure.storage.files.file_io import write_all

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
    try:
        files.share_blocks(source, target)
        return
    except OSError as error:
        if error.errno not in CANNOT:
            raise
    offset = _copy_in_kernel(source, target, name)
    while piece := pread(source, CHUNK, offset):
        os.lseek(target, offset, os.SEEK_SET)
        write_all(target, piece, name)
        offset += len(piece)


def _copy_in_kernel(source: int, target: int, name: str) -> int:
    """How far it came; the rest, or all of it, is left to an ordinary copy."""
    offset = 0
    try:
        while True:
            point(name)
            done = files.copy_range(source, target, CHUNK, offset)
            if done == 0:
                return offset
            offset += done
    except OSError as error:
        if error.errno not in CANNOT:
            raise
    return offset
