"""What Perdure wrote into a client's file: kept beside our own data, so that sync touches nothing else.

An entry is ours while what is ours to write in it has the hash of what we wrote. A claim is made before the file is
changed and settled after it, so a kill in between leaves both hashes, and whichever state the file is in is known.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.locks import lock
from perdure.present.tool_errors import tool_error
from perdure.protocol.msgspec_types import prepare_type
from perdure.registry.clients.text_edit import shared_prefix
from perdure.registry.errors import RegistryUnavailable, Unreadable
from perdure.storage.errors import StorageError
from perdure.storage.files.pending import PendingFile
from perdure.storage.user_dirs import data_dir

VERSION: Final = 1


class Claim(msgspec.Struct, frozen=True):
    """`landed` once the entry has been in the file: if it is missing later, somebody removed it.

    `source` is the registry it was written from; another one has no say in it.
    """

    hashes: tuple[str, ...]
    landed: bool = False
    source: str = ""


class Undo(msgspec.Struct, frozen=True):
    """How a file that still has this hash gets back to what it was: one splice of bytes; or it was not there."""

    sha256: str
    start: int
    length: int
    removed: bytes
    existed: bool
    made: tuple[str, ...] = ()
    """Folders that were made for it, innermost last."""


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
    """The sidecar of one file, ours alone while in `with`."""

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
        """What is recorded. One that cannot be read is no reason to take everything for somebody else's."""
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
        """What is about to be written; durable before the file is touched."""
        if sidecar != self.sidecar:
            self._save(sidecar)
            point("view.claimed")

    def settle(self, sidecar: Sidecar) -> None:
        """What is in the file now."""
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


def hash_of(value: Mapping[str, Any], keys: frozenset[str]) -> str:
    """Of what is ours in an entry. Keys that the client adds for itself change nothing, nor does writing out what is
    so anyway, as clients do when they save their file."""
    ours = {
        key: _number(one) for key, one in value.items() if key in keys and not _goes_without_saying(key, one)
    }
    return hashlib.sha256(msgspec.json.encode(ours, order="deterministic")).hexdigest()


def _goes_without_saying(key: str, value: Any) -> bool:
    if key in ("enabled", "disabled"):
        return value is (key == "enabled")
    return value is None or value in ("", [], {}) or (key == "type" and value == "stdio")


def _number(value: Any) -> Any:
    """20 and 20.0 are one number to every client."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def undo_of(before: bytes | None, after: bytes, made: tuple[str, ...] = ()) -> Undo:
    """The splice that takes one change back."""
    old = before or b""
    start = shared_prefix(old, after)
    tail = shared_prefix(old[start:][::-1], after[start:][::-1])
    sha256 = hashlib.sha256(after).hexdigest()
    length = len(after) - tail - start
    return Undo(sha256, start, length, old[start : len(old) - tail], before is not None, made)


def undone(undo: Undo, data: bytes) -> bytes | None:
    """The bytes from before; None where the file is not what we left."""
    if hashlib.sha256(data).hexdigest() != undo.sha256:
        return None
    return data[: undo.start] + undo.removed + data[undo.start + undo.length :]
