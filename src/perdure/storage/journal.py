"""What the journal holds and offers: the port that the write surface is built on.

A row says that a change was decided; it is durable, with the content, before any file is touched. Rows are
chained by hash and never updated: what became of an intent that failed stands in a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from perdure.storage.reservations import ReservationReading, ReservationWriting
from perdure.storage.timeline import TimelineReading, TimelineWriting

Digest = bytes
State = Literal["aborted", "conflict", "break"]
T = TypeVar("T")


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change about to be made."""

    path: str
    op: str
    mode: str
    old_sha: Digest | None
    new_sha: Digest | None
    bytes: int
    client: str
    session: str
    key: str | None = None
    txn: str | None = None
    undoes: int | None = None
    detail: dict[str, Any] = {}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the journal; `ts` in microseconds."""

    seq: int
    ts: int
    path: str
    op: str
    mode: str
    old_sha: Digest | None
    new_sha: Digest | None
    bytes: int
    client: str
    session: str
    key: str | None
    txn: str | None
    undoes: int | None
    detail: dict[str, Any]


class Intent(msgspec.Struct, frozen=True):
    """A row that is not yet known to be on disk for good."""

    row: Row
    same_boot: bool


class Invocation(msgspec.Struct, frozen=True):
    key: str
    tool: str
    fingerprint: bytes
    last_seq: int | None
    render: str
    detail: str
    result: bytes


class Draft(msgspec.Struct, frozen=True):
    id: str
    sha: Digest
    size: int
    path: str
    reason: str


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows are wanted, newest first, before `before`."""

    path: str | None = None
    mode: str | None = None
    client: str | None = None
    session: str | None = None
    since: int | None = None
    before: int | None = None


class Problem(msgspec.Struct, frozen=True):
    """Something that verification found."""

    kind: str
    detail: str
    seq: int = 0


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A content kept under a name, out of the tree; times in microseconds."""

    kind: str
    name: str
    at: int = 0
    sha: Digest
    size: int
    meta: dict[str, Any] = {}
    client: str = ""
    session: str = ""
    created: int
    updated: int
    expires: int | None = None


class Retired(msgspec.Struct, frozen=True):
    """What was gone through and forgotten; the files of these contents are to be removed."""

    rows: int
    files: list[Digest]
    more: bool


class Writing(TimelineWriting, ReservationWriting, Protocol):
    """What may be done inside the one write transaction."""

    @property
    def head(self) -> int:
        """The newest row."""

    def append(self, row: NewRow) -> Row: ...
    def store_content(self, sha: Digest, data: bytes, *, by_row: bool = True, mends: bool = False) -> None:
        """With `mends` it takes the place of a copy that is damaged."""

    def store_sealed(self, sha: Digest, size: int, sealed: bytes, *, by_row: bool = True) -> None:
        """A small content, encrypted. `sha` and `size` are those of the content itself."""

    def store_content_file(self, sha: Digest, size: int, *, by_row: bool = True) -> None: ...
    def conclude(self, seq: int, state: State, draft: str | None = None) -> None: ...
    def settle(self, seqs: Iterable[int]) -> None: ...
    def record_invocation(self, invocation: Invocation, first_seq: int | None) -> None: ...
    def save_draft(self, draft: Draft, client: str, session: str) -> None: ...
    def consume_retry(self, path: str, sha: Digest, budget: int) -> int: ...
    def record_seen(self, session: str, path: str, sha: Digest | None, after: int) -> None:
        """What a session knows of a file, and which row it knows it after, unless it knows it after a later one. What it
        wrote stands in its rows: this is for what it read, and for rows that came to nothing."""

    def stored_bytes(self) -> int:
        """Of all contents, as they are kept."""

    def retire(self, n: int, *, before: int, most_bytes: int, in_reach: int) -> Retired: ...
    def expire(self, n: int, *, before: int, drafts_before: int) -> Retired: ...
    def shelf_put(self, item: Item) -> Retired: ...
    def shelf_remove(self, kind: str, name: str, at: int | None = None) -> Retired: ...
    def expire_shelf(self, n: int) -> Retired: ...


class Reading(TimelineReading, ReservationReading, Protocol):
    """What may be asked at any time, from any thread."""

    def rows(self, wanted: Filter, n: int) -> list[Row]: ...
    def row(self, seq: int) -> Row | None: ...
    def last_of(self, path: str) -> Row | None: ...
    def transaction(self, txn: str, n: int | None = None) -> list[Row]:
        """Its first `n` rows, or all, oldest first."""

    def has_lost(self, txn: str) -> bool:
        """Whether a row of the transaction was found in conflict with another program's change."""

    def undone_by(self, seq: int) -> Row | None: ...
    def intents(self) -> list[Intent]: ...
    def newest_intent(self) -> int: ...
    def applied_watermark(self) -> int: ...
    def content(self, sha: Digest) -> bytes | None:
        """A small content; None where there is none, or where it is a file or sealed."""

    def sealed_content(self, sha: Digest) -> bytes | None: ...
    def has_content(self, sha: Digest) -> bool: ...
    def content_file(self, sha: Digest) -> bool: ...
    def content_size(self, sha: Digest) -> int | None:
        """Of a small content; None where there is none, or where it is a file."""

    def invocation(self, key: str) -> Invocation | None: ...
    def draft(self, identity: str) -> Draft | None: ...
    def drafts(self, n: int, session: str) -> list[Draft]: ...
    def last_seen(self, session: str, path: str) -> tuple[Digest | None] | None:
        """What it last read or wrote there; None where it never looked."""

    def shelf(self, kind: str, name: str | None = None) -> list[Item]: ...
    def item(self, kind: str, name: str, at: int = 0) -> Item | None: ...
    def shelf_end(self, kind: str, name: str) -> int: ...
    def analytics(self, since: int | None, session: str | None) -> dict[str, Any]: ...
    def verify(self, passed: Callable[[int], None] | None = None) -> Iterable[Problem]: ...
    def contents(self) -> Iterable[tuple[Digest, bytes | None]]: ...
    def sealed_contents(self) -> Iterable[tuple[Digest, bytes]]: ...
    def latest(self) -> Iterable[Row]: ...


class Journal(Writing, Reading, Protocol):
    def transact(self, work: Callable[[], T]) -> T:
        """Run `work` in the write transaction; all of it is durable on return, or nothing happened."""

    def nested(self, work: Callable[[], T]) -> T:
        """Inside `transact`: a part whose failure takes back only what it wrote itself."""

    def set_applied_watermark(self, seq: int) -> None:
        """Outside a transaction: every row up to this one landed or was concluded. Nothing is synced: the mark
        outlives a killed process, and after a power cut it counts for nothing."""

    def is_replaced(self) -> bool:
        """Whether its files were removed or replaced since it was opened."""

    def close(self) -> None: ...
