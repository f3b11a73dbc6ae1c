"""A call of a storm: what was asked, which effects it should have, what was answered."""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import msgspec

Fate = Literal["open", "done", "refused", "not_started", "unknown", "unanswered"]
Meant = Literal["done", "refused"]

OUTCOMES: Final = ("not_started", "replayed", "probed_done", "unknown")


class Wrote(msgspec.Struct, frozen=True):
    """The file got this content, which no other call gives it."""

    path: str
    sha: bytes


class Line(msgspec.Struct, frozen=True):
    """The file, which others change as well, got this line."""

    path: str
    text: str


class Gone(msgspec.Struct, frozen=True):
    path: str


class TookBack(msgspec.Struct, frozen=True):
    """The change under this number was undone."""

    path: str
    seq: int


class Restored(msgspec.Struct, frozen=True):
    path: str
    sha: bytes


class Shelved(msgspec.Struct, frozen=True):
    """This content lies on the shelf, as a chunk, a checkpoint or scratch; `path` says of which kind and name."""

    path: str
    sha: bytes


Effect = Wrote | Line | Gone | TookBack | Restored | Shelved


class Call(msgspec.Struct):
    """`floor` is the newest change that was acknowledged when it was sent; `hits` are the kills it lived through."""

    number: int
    kind: str
    tool: str
    arguments: dict[str, Any]
    effects: list[Effect] = []
    meant: Meant = "done"
    floor: int = 0
    hits: int = 0
    fate: Fate = "open"
    answers: list[dict[str, Any]] = []

    @property
    def paths(self) -> list[str]:
        return [effect.path for effect in self.effects]

    @property
    def group(self) -> str:
        """Calls with one idempotency key are one."""
        return self.arguments.get("idempotency_key") or f"call {self.number}"

    @property
    def payload(self) -> dict[str, Any]:
        """What it answered with; the envelope, where it was refused."""
        found: dict[str, Any] = self.answers[0].get("result", {}).get("structuredContent", {})
        return found

    def take(self, frame: dict[str, Any]) -> None:
        """An answer of the host, or of the worker. Only the first decides."""
        self.answers.append(frame)
        if len(self.answers) > 1:
            return
        if "result" in frame:
            refused = frame["result"].get("isError") or self.payload.get("conflicts")
            self.fate = "refused" if refused else "done"
        else:
            outcome = (frame["error"].get("data") or {}).get("outcome")
            self.fate = "not_started" if outcome == "not_started" else "unknown"

    def journal_ids(self) -> list[int]:
        """The changes it says it made."""
        found = self.payload
        if "files" in found:
            return [int(file["journal_id"]) for file in found["files"]]
        if "journal_ids" in found:
            return [int(seq) for seq in found["journal_ids"]]
        return [int(found["journal_id"])] if found.get("journal_id") is not None else []

    def __str__(self) -> str:
        return f"call {self.number} ({self.kind} {' '.join(self.paths)})"


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
