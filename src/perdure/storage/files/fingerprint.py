"""Whether a file is still the one that was seen: by its hash, or by its identity where that is proof enough."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

import msgspec

from perdure.platform.descriptors import pread
from perdure.storage.digest import sha256_of
from perdure.storage.errors import FileChanging

CHUNK: Final = 1 << 20
_SETTLED_NS: Final = 2_000_000_000
_READS: Final = 5


class Identity(msgspec.Struct, frozen=True):
    """A file as the system tells it apart, and when it was looked at."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    seen_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> Identity:
        return cls(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, time.time_ns())

    @property
    def is_settled(self) -> bool:
        """Whether a later change must show in the times: within one tick of a clock two changes look the same."""
        return self.seen_ns - max(self.mtime_ns, self.ctime_ns) > _SETTLED_NS

    def is_still(self, info: os.stat_result) -> bool:
        return self.is_same_content(info) and self.ctime_ns == info.st_ctime_ns

    def is_same_content(self, info: os.stat_result) -> bool:
        """As `is_still`, but for a file that was renamed since, which changes its ctime."""
        return (self.dev, self.ino, self.size, self.mtime_ns) == (
            info.st_dev,
            info.st_ino,
            info.st_size,
            info.st_mtime_ns,
        )


class Expected(msgspec.Struct, frozen=True):
    """What should be there. The identity only saves reading; the hash decides."""

    sha256: str
    identity: Identity | None = None

    def is_unchanged_by_stat(self, info: os.stat_result) -> bool:
        """Whether the file at its place needs no reading: nothing about it changed since it was read."""
        return self.identity is not None and self.identity.is_settled and self.identity.is_still(info)

    def matches(self, fd: int, *, was_certain: bool = False) -> bool:
        """Whether an open file is the expected one. `was_certain` is what was said just before it was renamed."""
        if was_certain and self.identity is not None and self.identity.is_same_content(os.fstat(fd)):
            return True
        return sha256_of(fd) == self.sha256


def seen(fd: int) -> Expected:
    """Hash and identity of a file that did not change while it was read.

    Its times may change without its content, when it is renamed: then the same hash twice is as good.
    """
    return read_seen(fd, 0)[1]


def read_seen(fd: int, most: int) -> tuple[bytes, Expected]:
    """As `seen`, with the file's first `most` bytes: those that were hashed."""
    before = ""
    for _ in range(_READS):
        identity = Identity.of(os.fstat(fd))
        data, sha256 = _hashed(fd, most)
        if sha256 == before or identity.is_still(os.fstat(fd)):
            return data, Expected(sha256, identity)
        before = sha256
    raise FileChanging


def _hashed(fd: int, most: int) -> tuple[bytes, str]:
    if not most:
        return b"", sha256_of(fd)
    digest = hashlib.sha256()
    kept = bytearray()
    offset = 0
    while piece := pread(fd, CHUNK, offset):
        digest.update(piece)
        kept += piece[: most - len(kept)]
        offset += len(piece)
    return bytes(kept), digest.hexdigest()
