"""Calls of the C library that Python lacks, and the answers of a POSIX system that has none of them.

`linux.py` and `macos.py` implement the same names; `files.py` chooses. A missing call fails with ENOSYS, and
`is_missing` tells that from a refusal.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

_MISSING: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def is_missing(error: OSError) -> bool:
    """Whether the kernel or the file system cannot do this at all."""
    return error.errno in _MISSING


def missing() -> OSError:
    return OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@cache
def libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(function: Callable[..., int], *arguments: Any) -> int:
    """The result of a C function, or its errno as OSError. Repeats an interrupted call, as Python does."""
    while (result := function(*arguments)) < 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return result


def open_beneath(dir_fd: int, path: str, flags: int) -> int:
    raise missing()


def open_entry(dir_fd: int, name: str) -> int:
    raise missing()


def exchange(dir_fd: int, one: str, other: str) -> None:
    raise missing()


def rename_exclusively(src_dir: int, src: str, dst_dir: int, dst: str) -> None:
    raise missing()


def birth_time(path: str) -> int | None:
    born = getattr(os.lstat(path), "st_birthtime", None)
    return None if born is None else int(born * 1_000_000_000)


def is_open_for_writing(fd: int) -> bool:
    return False


def share_blocks(source: int, target: int) -> None:
    raise missing()


def copy_range(source: int, target: int, size: int, offset: int) -> int:
    raise missing()
