"""File operations that differ between systems. Each raises OSError like its neighbours in `os`.

| function | does |
|---|---|
| `open_beneath(dir_fd, path, flags)` | opens a path without leaving `dir_fd`: no `..`, symbolic link or mount on the way |
| `open_entry(dir_fd, name)` | the same for a name that may itself be a symbolic link, only to examine it |
| `exchange(dir_fd, one, other)` | two names of a directory change places in one step; both must exist |
| `rename_noreplace(…)` | renames, or raises FileExistsError if the new name is taken |
| `open_unnamed(dir_fd, mode)`, `link_unnamed(…)` | a file without a name, and its first name |
| `copy_range(source, target, size, offset)` | copies inside the kernel: the number of bytes, 0 at the end |
| `share_blocks(source, target)` | makes one file a copy of another that shares its blocks |
| `birth_time(path)` | when a file was made, in nanoseconds; None where the file system does not tell |
| `is_open_for_writing(fd)` | whether some process has this file open for writing; False where the system cannot tell |

Where a system lacks one it fails with ENOSYS or one of its neighbours, and `is_missing` tells that from a refusal.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from typing import Final

from perdure.platform.directories import PLACE
from perdure.platform.posix import is_missing

if sys.platform == "linux":
    from perdure.platform.linux import (
        birth_time,
        copy_range,
        exchange,
        is_open_for_writing,
        open_beneath,
        open_entry,
        rename_exclusively,
        share_blocks,
    )
else:
    from perdure.platform.posix import (
        birth_time,
        copy_range,
        exchange,
        is_open_for_writing,
        open_beneath,
        open_entry,
        rename_exclusively,
        share_blocks,
    )

    if sys.platform == "darwin":
        from perdure.platform.macos import exchange, rename_exclusively

__all__ = [
    "birth_time",
    "can_open_beneath",
    "copy_range",
    "exchange",
    "is_missing",
    "is_open_for_writing",
    "link_unnamed",
    "open_beneath",
    "open_entry",
    "open_unnamed",
    "rename_noreplace",
    "reopen_path",
    "share_blocks",
]

# An unnamed file gets its name through /proc: without it such files are of no use.
_TMPFILE: Final = getattr(os, "O_TMPFILE", 0) if os.path.exists("/proc/self/fd") else 0
_NO_TMPFILE: Final = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS)


@cache
def can_open_beneath() -> bool:
    """Asked once. A sandbox may refuse the call where the kernel has it; both mean that it is not there."""
    flags = PLACE | os.O_DIRECTORY
    try:
        here = os.open(".", flags)
        try:
            os.close(open_beneath(here, ".", flags))
        finally:
            os.close(here)
    except OSError:
        return False
    return True


def rename_noreplace(src_dir: int, src: str, dst_dir: int, dst: str) -> None:
    """Exactly one of several callers succeeds."""
    try:
        rename_exclusively(src_dir, src, dst_dir, dst)
    except OSError as error:
        if not is_missing(error):
            raise
        os.link(src, dst, src_dir_fd=src_dir, dst_dir_fd=dst_dir, follow_symlinks=False)
        os.unlink(src, dir_fd=src_dir)


def open_unnamed(dir_fd: int, mode: int) -> int | None:
    """A file that no other process sees and that a killed process does not leave behind; None where there are none."""
    if not _TMPFILE:
        return None
    try:
        return os.open(".", os.O_RDWR | _TMPFILE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        return None


def link_unnamed(fd: int, dir_fd: int, name: str) -> None:
    """Raises FileExistsError if the name is taken."""
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)


def reopen_path(fd: int) -> str:
    """A path under which an open file without a name can be opened once more."""
    return f"/proc/self/fd/{fd}"
