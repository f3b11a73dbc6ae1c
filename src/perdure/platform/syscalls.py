"""The system calls that Python does not have: confined opening, exchange, and rename without replacing.

Each raises OSError like its neighbours in `os`. Where a platform lacks one it fails with ENOSYS, and
`is_missing` tells that from a refusal.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final

if sys.platform != "win32":
    import fcntl

RESOLVE_NO_XDEV: Final = 0x01
RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08

_OPENAT2: Final = ctypes.c_long(437)  # the same on every architecture
_HOW_SIZE: Final = ctypes.c_size_t(24)
_RENAMEAT2: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_BTIME: Final = 0x800
_NOREPLACE: Final = 1
_EXCHANGE: Final = 2
_DARWIN_SWAP: Final = 2
_DARWIN_EXCL: Final = 4
_MISSING: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})


def is_missing(error: OSError) -> bool:
    """Whether the kernel or the file system cannot do this at all."""
    return error.errno in _MISSING


@cache
def has_openat2() -> bool:
    """Asked once. A sandbox may refuse the call where the kernel has it; both mean that it is not there."""
    try:
        os.close(open_beneath(os.open(".", _HERE), ".", _HERE, RESOLVE_BENEATH, closing=True))
    except OSError:
        return False
    return True


_HERE: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def open_beneath(dir_fd: int, path: str, flags: int, resolve: int, *, closing: bool = False) -> int:
    """openat2: the kernel itself refuses every way out of `dir_fd`. `closing` gives up that descriptor."""
    try:
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        how = _how(flags | os.O_CLOEXEC, resolve)
        return _made(_libc().syscall, _OPENAT2, dir_fd, os.fsencode(path), how, _HOW_SIZE)
    finally:
        if closing:
            os.close(dir_fd)


@cache
def _how(flags: int, resolve: int) -> bytes:
    """There are few of them."""
    return struct.pack("=QQQ", flags, 0, resolve)


def exchange(dir_fd: int, one: str, other: str) -> None:
    """Two names of a directory change places in one step. Both must exist."""
    _rename(dir_fd, one, dir_fd, other, _EXCHANGE, _DARWIN_SWAP)


def rename_noreplace(src_dir: int, src: str, dst_dir: int, dst: str) -> None:
    """Rename, or FileExistsError if the new name is taken. Exactly one of several callers succeeds."""
    try:
        _rename(src_dir, src, dst_dir, dst, _NOREPLACE, _DARWIN_EXCL)
    except OSError as error:
        if not is_missing(error):
            raise
        os.link(src, dst, src_dir_fd=src_dir, dst_dir_fd=dst_dir, follow_symlinks=False)
        os.unlink(src, dir_fd=src_dir)


def birth_time(path: str) -> int | None:
    """When a file was made, in nanoseconds; None where the file system does not tell. A link is not followed."""
    if (born := getattr(os.lstat(path), "st_birthtime", None)) is not None:
        return int(born * 1_000_000_000)
    if not sys.platform.startswith("linux") or not hasattr(_libc(), "statx"):
        return None
    found = ctypes.create_string_buffer(256)
    try:
        _made(_libc().statx, _AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found)
    except OSError as error:
        if not is_missing(error):
            raise
        return None
    mask, seconds, nanoseconds = struct.unpack_from("=I76xqI", found)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME else None


def boot_session() -> str | None:
    """macOS: a UUID that is made anew at each boot. None elsewhere."""
    if sys.platform != "darwin":
        return None
    found, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if _libc().sysctlbyname(b"kern.bootsessionuuid", found, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return None
    return found.value.decode("ascii", "replace") or None


def is_open_for_writing(fd: int) -> bool:
    """Whether some process has this file open for writing. False where nobody can say.

    A read lease is only given on a file that nobody can write to. It is handed back at once: the question
    was the point. Should it be broken in between, the signal is one that is ignored by default.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def _rename(src_dir: int, src: str, dst_dir: int, dst: str, linux: int, darwin: int) -> None:
    libc = _libc()
    old, new = os.fsencode(src), os.fsencode(dst)
    if hasattr(libc, "renameat2"):
        _made(libc.renameat2, src_dir, old, dst_dir, new, ctypes.c_uint(linux))
    elif hasattr(libc, "renameatx_np"):
        _made(libc.renameatx_np, src_dir, old, dst_dir, new, ctypes.c_uint(darwin))
    elif platform.machine() in _RENAMEAT2 and sys.platform.startswith("linux"):
        number = ctypes.c_long(_RENAMEAT2[platform.machine()])
        _made(libc.syscall, number, src_dir, old, dst_dir, new, ctypes.c_uint(linux))
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _made(call: Callable[..., int], *given: Any) -> int:
    """The result of a call, or its error. An interrupted one is made again, as Python does for its own."""
    while (result := call(*given)) < 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
    return result
