"""What is asked of the write surface and what it must answer: the vocabulary of the model's predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from harness.tree_model.state import Entry, View
from harness.tree_model.text import sha256

Payload = dict[str, Any]


class Request(msgspec.Struct, frozen=True):
    """One call of one session."""

    tool: str
    arguments: Payload
    session: str
    client: str

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"<{self.session}@{self.client} {self.tool}({given})>"


class Evidence(msgspec.Struct, frozen=True):
    """What really happened: whether an undo ended in conflicts, and what it made of the change under a number."""

    conflicted: bool
    made: Callable[[int], bytes | None]


class Done(msgspec.Struct, frozen=True):
    """The payload without what only the product can know. None: not certain, but nothing changes."""

    payload: Payload | None


class Refusal(Exception):
    """The error and what its context must hold. `kept` is a payload that was not written and must not be lost: it is
    the draft, and may be tried as often as one of `left` says (-1: no more). `beside` came in the same call."""

    def __init__(self, error: str, reason: str, **context: Any) -> None:
        super().__init__(f"{error}/{reason}")
        self.error = error
        self.context = {"reason": reason, **context}
        self.kept: tuple[str, bytes] | None = None
        self.beside: list[bytes] = []
        self.draft: str | None = None
        self.left: set[int] = {0}


class WrongMerge(AssertionError):
    """A merge that no reading of the rules allows."""


Answer = Done | Refusal


def sha_of(content: bytes | None) -> str | None:
    return sha256(content) if content is not None else None


def check_expected(view: View, path: str, expected: str | None) -> None:
    actual = sha_of(view.content(path))
    if expected is not None and (actual or "") != expected:
        reason = "hash_mismatch" if actual is not None else "file_not_found"
        raise Refusal("stale_precondition", reason, path=path, actual_prev_sha256=actual)


def existing(view: View, path: str) -> bytes:
    content = view.content(path)
    if content is None:
        raise Refusal("not_found", "file_not_found")
    return content


def shown(entry: Entry) -> Payload:
    """A row as `journal_tail` must show it, but for time and transaction."""
    return {
        "journal_id": str(entry.seq),
        "path": entry.path,
        "op": entry.op,
        "mode": entry.mode,
        "sha256": sha_of(entry.new),
        "prev_sha256": sha_of(entry.old),
        "bytes": len(entry.new or b""),
        "client": entry.client,
        "session": entry.session,
    }
