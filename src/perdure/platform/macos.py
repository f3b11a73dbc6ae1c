"""File operations of macOS that Python lacks: renameatx_np."""

from __future__ import annotations

import ctypes
import os
from typing import Final

from perdure.platform.posix import call, libc

_SWAP: Final = 2
_EXCLUSIVE: Final = 4


def exchange(dir_fd: int, one: str, other: str) -> None:
    _rename(dir_fd, one, dir_fd, other, _SWAP)


def rename_exclusively(src_dir: int, src: str, dst_dir: int, dst: str) -> None:
    _rename(src_dir, src, dst_dir, dst, _EXCLUSIVE)


def _rename(src_dir: int, src: str, dst_dir: int, dst: str, flag: int) -> None:
    old, new = os.fsencode(src), os.fsencode(dst)
    call(libc().renameatx_np, src_dir, old, dst_dir, new, ctypes.c_uint(flag))


def boot_session() -> str | None:
    """A UUID that is made anew at each boot."""
    buffer, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if libc().sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return None
    return buffer.value.decode("ascii", "replace") or None
