"""What the time machine keeps beside the rows of the journal: the files as last seen, the calls, the turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

import msgspec

FileKind = Literal["file", "link", "directory"]
CallStatus = Literal["open", "done", "unfinished", "late"]

ANOTHER_PROGRAM: Final = "another program"
"""The client of a change that no call made."""


class TrackedFile(msgspec.Struct, frozen=True, gc=False):
    """A covered file as it was last seen. Its content is in the store under `sha`, or in git as the blob `git_oid`."""

    path: str
    kind: FileKind
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int
    sha: bytes | None = None
    git_oid: str | None = None


class NotCovered(msgspec.Struct, frozen=True):
    """A file or folder that the time machine leaves out. `files` is how many files; None where they were not counted."""

    path: str
    reason: str
    files: int | None = None


class ObservationRecord(msgspec.Struct, frozen=True):
    """The last look at the workspace: when, in microseconds, and the commit that git's HEAD stood for."""

    ts: int
    head: str | None


class NewCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool outside Perdure. `paths` are the files that its input names."""

    client: str
    session: str
    tool: str
    txn: str | None
    agent: str | None = None
    turn: int | None = None
    call_id: str | None = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    process: str | None = None
    """The client's process."""
    status: CallStatus = "open"


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it is kept; times in microseconds. `seq` is the first row of its change."""

    id: int
    client: str
    session: str
    agent: str | None
    turn: int | None
    tool: str
    call_id: str | None
    command: str | None
    paths: tuple[str, ...]
    begun: int
    ended: int | None
    status: CallStatus
    txn: str | None
    seq: int | None
    process: str | None = None


class ChangeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes are wanted. `before` is the id of a change: older ones. `path` is a file or a folder. `has_turn`: those
    of a call in a turn."""

    client: str | None = None
    session: str | None = None
    agent: str | None = None
    turn: int | None = None
    has_turn: bool = False
    path: str | None = None
    since: int | None = None
    before: int | None = None


class ChangeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that belong together: those of one transaction, or one row alone. `id` is the number of the first.

    A move counts as one file, a directory as none. `added` and `removed` are the lines that its rows tell of; None where no
    row does.
    """

    id: int
    txn: str | None
    ts: int
    client: str
    session: str
    files: int
    added: int | None
    removed: int | None
    is_undone: bool
    call: CallRecord | None


class TimelineWriting(Protocol):
    """Inside the write transaction."""

    def track_files(self, files: Iterable[TrackedFile]) -> None: ...

    def untrack_files(self, paths: Iterable[str]) -> list[bytes]:
        """Their contents are dropped, unless a row names them. Returns those whose files are to be removed."""

    def set_not_covered(self, places: Iterable[NotCovered]) -> None:
        """All that is left out, as the last look at the workspace found it."""

    def record_observation(self, head: str | None) -> None: ...

    def keep_content(self, sha: bytes) -> None:
        """A row of this transaction names this content, which the store has."""

    def begin_call(self, call: NewCall) -> CallRecord: ...

    def update_call(
        self, identity: int, *, status: CallStatus, seq: int | None = None, txn: str | None = None
    ) -> None:
        """Any status but `open` ends it. None leaves `seq` and `txn` as they are."""

    def forget_call(self, identity: int) -> None:
        """It has changed nothing."""

    def forget_calls(self, before: int) -> None:
        """Those that ended before a time, in microseconds, and have changed nothing."""

    def begin_turn(self, client: str, session: str) -> int:
        """The number of the turn that begins now: 1, 2, 3 …"""


class TimelineReading(Protocol):
    def tracked_files(self) -> list[TrackedFile]: ...

    def tracked_version(self) -> int:
        """Another number after each change of the tracked files."""

    def tracked_file(self, path: str) -> TrackedFile | None: ...

    def not_covered(self) -> list[NotCovered]: ...

    def last_observation(self) -> ObservationRecord | None:
        """None where the workspace was never looked at."""

    def open_calls(self) -> list[CallRecord]: ...

    def ended_calls(self, n: int) -> list[CallRecord]:
        """The newest ones that have ended, newest first."""

    def current_turn(self, client: str, session: str) -> int | None: ...

    def call_of(self, seq: int, txn: str | None) -> CallRecord | None:
        """The call that a row belongs to, by its number and its transaction."""

    def changes(self, wanted: ChangeFilter, n: int) -> list[ChangeSummary]:
        """Newest first."""

    def change(self, row_or_transaction: str) -> ChangeSummary | None:
        """The change that a row belongs to, by the number of any of its rows, or by its transaction."""
