"""Which files of a workspace the user trusts: by path and by the sha256 of the content, as direnv does.

One record per file, in the user's data directory and readable by its owner alone. A record also holds the trusted
content, so that `perdure trust` can show what changed since. A file whose content differs from its record by one
byte is not trusted.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Final, Literal

import msgspec

from perdure.platform import directories
from perdure.platform.permissions import user_id
from perdure.protocol.msgspec_types import prepare_type
from perdure.storage.user_dirs import data_dir, write_private

Verdict = Literal["trusted", "waiting", "changed"]
"""`waiting`: never trusted. `changed`: trusted once, with another content."""

MAX_RECORD: Final = 32 * 1024 * 1024


class Record(msgspec.Struct, frozen=True):
    path: str
    sha256: str
    content: bytes
    trusted_at: float
    previous: str = ""
    """The content that the user's own command is about to replace: it stays trusted until that is done."""


class TrustStore:
    """Paths are absolute: the real path of the workspace, then the file's place in it, links not followed.

    A link in a workspace that leads to a file trusted elsewhere is therefore a file of its own.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or os.path.join(data_dir(), "trust")

    def verdict(self, path: str, content: bytes) -> Verdict:
        record = self.record_of(path)
        if record is None:
            return "waiting"
        return "trusted" if sha256(content) in (record.sha256, record.previous) else "changed"

    def trust(self, path: str, content: bytes, *, previous: bytes | None = None) -> Record:
        replaced = "" if previous is None else sha256(previous)
        record = Record(path, sha256(content), content, time.time(), replaced)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        write_private(self._file(path), msgspec.json.encode(record))
        return record

    def revoke(self, path: str) -> bool:
        """Whether there was a record."""
        try:
            os.unlink(self._file(path))
        except FileNotFoundError:
            return False
        return True

    def record_of(self, path: str) -> Record | None:
        try:
            fd = directories.open(self._file(path), os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != user_id() or facts.st_mode & 0o022:
                return None  # not written by this user: it proves nothing
            try:
                record = msgspec.json.decode(file.read(MAX_RECORD), type=prepare_type(Record))
            except (OSError, msgspec.MsgspecError):
                return None
        return record if record.path == path else None

    def _file(self, path: str) -> str:
        return os.path.join(self.folder, f"{sha256(os.fsencode(path))[:32]}.json")


def sha256(data: bytes) -> str:
    from hashlib import sha256  # imported only where a workspace has such a file

    return sha256(data).hexdigest()


def path_in(root: str, name: str) -> str:
    """The path under which a file of a workspace is trusted."""
    return os.path.join(os.path.realpath(root), name)
