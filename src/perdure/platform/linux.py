"""File operations of Linux that Python lacks: openat2, renameat2, statx, read leases, shared blocks."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct
import sys
from functools import cache
from typing import Final

from perdure.platform.posix import call, is_missing, libc, missing

assert sys.platform == "linux"

_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_ENTRY: Final = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
_STRICT: Final = _ENTRY | _RESOLVE_NO_SYMLINKS

_OPENAT2: Final = ctypes.c_long(437)  # the same on every architecture
_HOW_SIZE: Final = ctypes.c_size_t(24)
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_BTIME: Final = 0x800
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_FICLONE: Final = 0x40049409


def open_beneath(dir_fd: int, path: str, flags: int) -> int:
    """openat2: the kernel refuses every way out of `dir_fd`, and every symbolic link and mount on the way."""
    how = _how(flags | os.O_CLOEXEC, _STRICT)
    return call(libc().syscall, _OPENAT2, dir_fd, os.fsencode(path), how, _HOW_SIZE)


def open_entry(dir_fd: int, name: str) -> int:
    """The same for a name that may itself be a symbolic link. The descriptor can only be examined."""
    how = _how(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, _ENTRY)
    return call(libc().syscall, _OPENAT2, dir_fd, os.fsencode(name), how, _HOW_SIZE)


@cache
def _how(flags: int, resolve: int) -> bytes:
    """The kernel's `struct open_how`. Few combinations occur."""
    return struct.pack("=QQQ", flags, 0, resolve)


def exchange(dir_fd: int, one: str, other: str) -> None:
    _rename(dir_fd, one, dir_fd, other, _EXCHANGE)


def rename_exclusively(src_dir: int, src: str, dst_dir: int, dst: str) -> None:
    _rename(src_dir, src, dst_dir, dst, _NOREPLACE)


def _rename(src_dir: int, src: str, dst_dir: int, dst: str, flag: int) -> None:
    old, new = os.fsencode(src), os.fsencode(dst)
    if hasattr(libc(), "renameat2"):
        call(libc().renameat2, src_dir, old, dst_dir, new, ctypes.c_uint(flag))
    elif platform.machine() in _RENAMEAT2:
        number = ctypes.c_long(_RENAMEAT2[platform.machine()])
        call(libc().syscall, number, src_dir, old, dst_dir, new, ctypes.c_uint(flag))
    else:
        raise missing()


def birth_time(path: str) -> int | None:
    if not hasattr(libc(), "statx"):
        return None
    buffer = ctypes.create_string_buffer(256)
    try:
        call(libc().statx, _AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buffer)
    except OSError as error:
        if not is_missing(error):
            raise
        return None
    mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", buffer)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else None


def is_open_for_writing(fd: int) -> bool:
    """Ask for a read lease, which the kernel grants only on a file without writers, and give it back at once.

    Should the lease be broken in between, its signal is one that is ignored by default.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def share_blocks(source: int, target: int) -> None:
    fcntl.ioctl(target, _FICLONE, source)


def copy_range(source: int, target: int, size: int, offset: int) -> int:
    return os.copy_file_range(source, target, size, offset, offset)
