"""Mounts and loop devices that end with the process that made them.

Everything is mounted in a private namespace, disks are memory files, and loop devices detach themselves when nothing
uses them any more. So whatever happens to us, `kill -9` included, the machine is as it was before.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIZE: Final = 64 << 20
BLOCK: Final = 4096
TOOLS: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

_NEW_NAMESPACE: Final = 0x20000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_NO_DEVICES, _NO_SETID = 4, 2
_DETACH: Final = 2
_DEATH_SIGNAL: Final = 1
_WRITE_OUT: Final = 2
_GET_FREE, _CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
_LOOP_CONFIG: Final = struct.Struct("=II 40x 12x I 176x 64x")
_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    """This machine cannot do it; the message says what is missing."""


class Unmountable(OSError):
    """The file system does not take its own disk after a cut."""


def missing() -> str | None:
    """What this machine lacks for cutting the power; None where nothing is known to be missing."""
    if not sys.platform.startswith("linux"):
        return "power cuts need Linux"
    if os.geteuid() != 0:
        return "power cuts need root"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"power cuts need {device}"
    if shutil.which("mkfs.ext4", path=TOOLS) is None:
        return "power cuts need mkfs.ext4"
    return None


def enter_namespace() -> None:
    """From here on, what this process mounts is seen by it and its children only."""
    _checked(_libc.unshare(_NEW_NAMESPACE))
    mount("none", "/", None, _RECURSIVE | _PRIVATE)


def die_with_parent() -> None:
    _checked(_libc.prctl(_DEATH_SIGNAL, 9))


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind is not None else None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        )
    )


def mount_fuse(fd: int, target: str) -> None:
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    mount("perdure", target, "fuse", _NO_DEVICES | _NO_SETID, options)


def bind(source: str, target: str) -> None:
    mount(source, target, None, _BIND)


def unmount(target: str) -> None:
    """Detached from its place even where something still uses it; then it ends with its last user."""
    try:
        _checked(_libc.umount2(os.fsencode(target), 0))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _checked(_libc.umount2(os.fsencode(target), _DETACH))


def sync_file_system(fd: int) -> None:
    _checked(_libc.syncfs(fd))


def start_writing_out(fd: int) -> None:
    """Begin to write a file's pages out, without waiting and without a commit of its metadata."""
    _libc.sync_file_range(fd, ctypes.c_longlong(0), ctypes.c_longlong(0), _WRITE_OUT)


@contextmanager
def loop(fd: int) -> Iterator[str]:
    """The path of a block device over an open file. It is gone when neither we nor a mount use it."""
    device = _attached(fd)
    try:
        yield f"/dev/loop{os.minor(os.fstat(device).st_rdev)}"
    finally:
        os.close(device)


def _attached(fd: int) -> int:
    config = _LOOP_CONFIG.pack(fd, BLOCK, _AUTOCLEAR)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(100):
            device = os.open(f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _CONFIGURE, bytearray(config))
                return device
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # somebody else took it first
                    raise
    finally:
        os.close(control)
    raise Unavailable("no loop device is free")


@contextmanager
def mounted(image: int | str, target: str, options: str = "") -> Iterator[None]:
    """An ext4 image, by its path or its open file, at a directory."""
    with opened(image) as fd, loop(fd) as device:
        try:
            mount(device, target, "ext4", 0, options)
        except OSError as error:
            raise Unmountable(error.errno, error.strerror) from None
    try:
        yield
    finally:
        unmount(target)


@contextmanager
def opened(image: int | str) -> Iterator[int]:
    fd = os.open(image, os.O_RDWR | os.O_CLOEXEC) if isinstance(image, str) else os.dup(image)
    try:
        yield fd
    finally:
        os.close(fd)


def fresh_image() -> int:
    """An ext4 file system in memory."""
    fd = os.memfd_create("disk")
    os.ftruncate(fd, SIZE)
    command = [shutil.which("mkfs.ext4", path=TOOLS) or "mkfs.ext4", "-q", "-F", "-b", str(BLOCK)]
    extended = "nodiscard,lazy_itable_init=0"
    subprocess.run([*command, "-E", extended, f"/proc/{os.getpid()}/fd/{fd}"], check=True)
    return fd


def copied(image: int) -> int:
    """Another memory file with the same content; holes stay holes."""
    fd = os.memfd_create("disk")
    os.ftruncate(fd, SIZE)
    for start, end in _extents(image):
        os.pwrite(fd, os.pread(image, end - start, start), start)
    return fd


def _extents(fd: int) -> Iterator[tuple[int, int]]:
    end = 0
    while True:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
