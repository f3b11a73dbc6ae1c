"""What Perdure wrote into a client's file: recorded in our data directory, so that sync touches nothing else.

An entry is ours while the keys that we write have the hash of what we wrote. A claim is recorded before the file is changed
and settled after it: a crash in between leaves both hashes, so the entry is known as ours in either state.
"""

from __future__ import annotations

import hashlib
import os
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.locks import lock
from perdure.present.tool_errors import tool_error
from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.clients.config_text import common_prefix
from perdure.registry.errors import RegistryUnavailable, Unreadable
from perdure.storage.errors import StorageError
from perdure.storage.files.pending import PendingFile
from perdure.storage.user_dirs import data_dir

VERSION: Final = 1


class Claim(msgspec.Struct, frozen=True):
    """`landed` once the entry has been in the file: if it is missing later, the user removed it.

    `source` is the registry it was written from; a sync from another one does not touch it.
    """

    hashes: tuple[str, ...]
    landed: bool = False
    source: str = ""


class Undo(msgspec.Struct, frozen=True):
    """One splice that brings a file of this hash back to what it was; `existed` is false if there was no file."""

    sha256: str
    start: int
    length: int
    removed: bytes
    existed: bool
    made: tuple[str, ...] = ()
    """Folders that were created for it, innermost last."""


class Sidecar(msgspec.Struct, frozen=True):
    """Everything of ours in one file of one client."""

    client: str
    file: str
    entries: dict[str, Claim] = {}
    installed: Claim | None = None
    undo: Undo | None = None
    has_hooks: bool = False
    permissions: tuple[str, ...] = ()
    version: int = VERSION


class Ownership:
    """The sidecar of one file; locked while in `with`."""

    def __init__(self, client: str, path: str) -> None:
        self.target = os.path.realpath(path)
        mark = hashlib.sha256(os.fsencode(self.target)).hexdigest()[:16]
        self._folder = os.path.join(data_dir(), "views")
        self._name = f"{client}-{mark}.json"
        self._lock_fd = -1
        self.sidecar = Sidecar(client, self.target)

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | directories.NOFOLLOW
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._lock_fd = directories.open(os.path.join(self._folder, f".{self._name}.lock"), flags, 0o600)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            lock(self._lock_fd)
            self.sidecar = self.read()
        except BaseException:
            os.close(self._lock_fd)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock_fd)

    def read(self) -> Sidecar:
        """Raises Unreadable for a sidecar that is damaged: without it our own entries would look like the user's."""
        path = os.path.join(self._folder, self._name)
        try:
            with open(path, "rb") as file:
                return msgspec.json.decode(file.read(), type=prepare_type(Sidecar))
        except (FileNotFoundError, NotADirectoryError):
            return self.sidecar
        except (msgspec.MsgspecError, OSError):
            raise Unreadable(
                "the record of what Perdure wrote there cannot be read", hint=f"look at {path}"
            ) from None

    def claim(self, sidecar: Sidecar) -> None:
        """Record what is about to be written; durable before the file is touched."""
        if sidecar != self.sidecar:
            self._save(sidecar)
            point("view.claimed")

    def settle(self, sidecar: Sidecar) -> None:
        """Record what is in the file now."""
        if sidecar != self.sidecar:
            self._save(sidecar)
            passed("view.settled")

    def _save(self, sidecar: Sidecar) -> None:
        self.sidecar = sidecar
        try:
            dir_fd = directories.open(self._folder, os.O_RDONLY | directories.DIRECTORY)
            try:
                with PendingFile(dir_fd, self._name, sync=True) as file:
                    file.write(msgspec.json.encode(sidecar))
                    file.replace()
            finally:
                os.close(dir_fd)
        except (OSError, StorageError) as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError | StorageError) -> RegistryUnavailable:
        why = error.strerror if isinstance(error, OSError) else tool_error(error).envelope.context["message"]
        return RegistryUnavailable(
            f"what Perdure writes there cannot be put on record: {why}", hint=f"look at {self._folder}"
        )


def hash_of(value: Any, keys: frozenset[str]) -> str:
    """The hash of what is ours in an entry; empty if it is no object. Keys that the client adds for itself do not count,
    nor do defaults, which clients write out when they save their file."""
    if not isinstance(value, dict):
        return ""
    ours = {
        key: _number(member) for key, member in value.items() if key in keys and not _is_default(key, member)
    }
    return hashlib.sha256(msgspec.json.encode(ours, order="deterministic")).hexdigest()


def _is_default(key: str, value: Any) -> bool:
    if key in ("enabled", "disabled"):
        return value is (key == "enabled")
    return value is None or value in ("", [], {}) or (key == "type" and value == "stdio")


def _number(value: Any) -> Any:
    """20 and 20.0 are one number to every client."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def undo_of(before: bytes | None, after: bytes, made: tuple[str, ...] = ()) -> Undo:
    """The splice that reverts one change."""
    old = before or b""
    start = common_prefix(old, after)
    tail = common_prefix(old[start:][::-1], after[start:][::-1])
    sha256 = hashlib.sha256(after).hexdigest()
    length = len(after) - tail - start
    return Undo(sha256, start, length, old[start : len(old) - tail], before is not None, made)


def restore_undo(undo: Undo, data: bytes) -> bytes | None:
    """The bytes from before the change; None if the file is not what we left."""
    if hashlib.sha256(data).hexdigest() != undo.sha256:
        return None
    return data[: undo.start] + undo.removed + data[undo.start + undo.length :]
