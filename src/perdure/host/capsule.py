"""The snapshot of a host that is replaced in place: a one-shot file for its owner alone (law 15)."""

from __future__ import annotations

import os
import stat
from binascii import hexlify

import msgspec

from perdure.host.settings import Settings
from perdure.platform import directories
from perdure.platform.permissions import user_id
from perdure.platform.sync import sync_file
from perdure.protocol.mounts import MountSpec
from perdure.storage.user_dirs import private_dir

RESUME_ENV = "PERDURE_RESUME"
TRIAL_ENV = "PERDURE_RESUME_TRIAL"
CAPSULE_VERSION = 1
MAX_CAPSULE = 512 * 1024 * 1024


class ChildCapsule(msgspec.Struct, frozen=True):
    mount: str
    generation: int
    pid: int
    stdin: int
    stdout: int
    unread: bytes
    unwritten: bytes
    input_open: bool
    output_open: bool
    stderr: int = -1
    tail: bytes = b""


class Mounted(msgspec.Struct, frozen=True):
    """What was mounted, and by which settings. `registry` is `RegistryMounts.dump`, empty where there is none."""

    settings: Settings
    specs: dict[str, MountSpec]
    registry: bytes = b""


class Capsule(msgspec.Struct, frozen=True):
    version: int
    pid: int
    client_in: int
    client_out: int
    input_open: bool
    unread: bytes
    unwritten: bytes
    guardian_fd: int
    guardian_pid: int
    guardian_mark: str
    children: list[ChildCapsule]
    kernel: bytes
    mounted: Mounted | None = None  # None from a version that wrote none: then the files are read again


class CapsuleError(ValueError):
    """This file is not a capsule that this process may open."""


def write_capsule(capsule: Capsule) -> str:
    """A new file that nobody else can read and that was not there before, on disk before it is named."""
    path = os.path.join(private_dir("capsules"), hexlify(os.urandom(16)).decode())
    fd = directories.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | directories.NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.msgpack.encode(capsule))
        file.flush()
        sync_file(fd)
    return path


def read_capsule(path: str, *, consume: bool) -> Capsule:
    """Open a capsule of our own. Raises CapsuleError for any other file, and leaves that alone."""
    try:
        fd = directories.open(path, os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK)
    except OSError as error:
        raise CapsuleError(f"cannot be opened: {error.strerror}") from None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != user_id() or facts.st_mode & 0o077:
            raise CapsuleError("is not a private file of ours")
        if consume:
            discard(path)
        if facts.st_size > MAX_CAPSULE:
            raise CapsuleError("is too large")
        with os.fdopen(fd, "rb", closefd=False) as file:
            capsule = msgspec.msgpack.decode(file.read(), type=Capsule)
    except msgspec.MsgspecError as error:
        raise CapsuleError(f"is damaged: {error}") from None
    finally:
        os.close(fd)
    if capsule.version != CAPSULE_VERSION:
        raise CapsuleError(f"has version {capsule.version}, not {CAPSULE_VERSION}")
    return capsule


def discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
