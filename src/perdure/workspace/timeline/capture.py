"""Reading covered files so that their contents can be kept, each exactly as it was at one moment."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import time
from typing import Final, Literal, NamedTuple

from perdure import risk
from perdure.platform.descriptors import pread
from perdure.platform.fault_points import point
from perdure.storage.digest import sha256_of
from perdure.storage.errors import CipherError
from perdure.storage.timeline import TrackedFile
from perdure.workspace.contents import INLINE, Content, ContentStore
from perdure.workspace.paths.roots import Roots, rooted
from perdure.workspace.timeline.coverage import Reason, is_secret_name
from perdure.workspace.timeline.scan import Entry, entry_of, examine, open_file, read_link

log = logging.getLogger(__name__)

IN_MEMORY: Final = 64 << 20
"""Small contents of one observation above this go to files at once, as large ones do."""
_TRIES: Final = 3
_VANISHED: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)


class Captured(NamedTuple):
    """A file or link as it was read. `was_kept`: its content was in the store already, and can have been dropped
    since."""

    entry: Entry
    content: Content
    was_kept: bool
    read_ns: int
    git_oid: str | None = None
    """The blob in which git has the content."""

    def tracked(self) -> TrackedFile:
        return self.entry.tracked(self.content.digest, self.read_ns, self.git_oid)


class ContentReader:
    """For one observation."""

    def __init__(self, roots: Roots, store: ContentStore, secrets: Literal["keep", "seal", "skip"]) -> None:
        self._roots = roots
        self._store = store
        self._secrets = secrets
        self._in_memory = 0

    def read(self, entry: Entry) -> Captured | Reason | None:
        """The reason where it cannot be covered; None where it is gone or kept changing: the next observation
        looks again."""
        point("timeline.read")
        try:
            return self._link(entry) if entry.kind == "link" else self._file(entry)
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            if error.errno == errno.EXDEV:
                return "mount"
            return "unreadable"

    def hash(self, entry: Entry) -> bytes | None:
        """Of a file whose content is not kept; None where it is gone or changed meanwhile."""
        number, inside = rooted(entry.path)
        try:
            fd = open_file(self._roots[number], inside)
        except OSError:
            return None
        try:
            sha256 = sha256_of(fd)
            return bytes.fromhex(sha256) if entry.matches(os.fstat(fd)) else None
        finally:
            os.close(fd)

    def release(self) -> None:
        """The contents that were read so far are in the store."""
        self._in_memory = 0

    def _link(self, entry: Entry) -> Captured | None:
        for _ in range(_TRIES):
            read_ns = time.time_ns()
            target = read_link(self._roots, entry.path)
            info = examine(self._roots, entry.path)
            if info is not None and entry.matches(info):
                return Captured(entry, self._store.take(target), False, read_ns)
            if info is None or (fresh := entry_of(entry.path, info)) is None or fresh.kind != "link":
                return None
            entry = fresh
        return None

    def _file(self, entry: Entry) -> Captured | Reason | None:
        number, inside = rooted(entry.path)
        fd = open_file(self._roots[number], inside)
        try:
            for _ in range(_TRIES):
                read_ns = time.time_ns()
                info = os.fstat(fd)
                fresh = entry_of(entry.path, info)
                if fresh is None or fresh.kind != "file":
                    return None
                read = self._content(fd, info.st_size, entry.path)
                if not fresh.matches(os.fstat(fd)):
                    continue
                if read is None:
                    return "secret"
                content, was_kept = read
                if content.size != info.st_size:
                    continue
                return Captured(fresh, content, was_kept, read_ns)
        finally:
            os.close(fd)
        return None

    def _content(self, fd: int, size: int, path: str) -> tuple[Content, bool] | None:
        """The content, and whether the store has it; None for a secret that cannot be kept."""
        has_secret_name = self._secrets == "seal" and is_secret_name(path.rpartition("/")[2])
        if size <= INLINE:
            data = pread(fd, size + 1, 0)
            content = Content(hashlib.sha256(data).hexdigest(), len(data), data)
            if has_secret_name or (self._secrets != "keep" and _is_secret(data)):
                return self._seal(content)
            self._in_memory += len(data)
            if self._in_memory <= IN_MEMORY:
                return content, False
            return self._store.take_pieces([data]), False
        if has_secret_name:
            return None
        sha256 = sha256_of(fd)
        if self._store.has(sha256):
            return Content(sha256, size), True
        return self._store.take_file(fd), False

    def _seal(self, content: Content) -> tuple[Content, bool] | None:
        if self._secrets != "seal":
            return None
        try:
            return self._store.seal(content), False
        except CipherError as error:
            log.warning("files that look like secrets are not covered: %s", error)
            return None


def _is_secret(data: bytes) -> bool:
    """Whether a credential is in it that the risk check is sure of."""
    if b"\0" in data:
        return False
    report = risk.scan(data.decode("utf-8", "replace"))
    return any(finding.tier == "precise" for finding in report.findings)
