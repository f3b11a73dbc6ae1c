"""From a scan to what it means: the changes since the last observation, planned before the workspace is locked.

What was at a path before is the journal's last row of it, else the tracked file. So a write of Perdure's own
tools, whose row is there already, is no change: only the tracked file is brought up to date. Nothing is known of a
file that was never covered or whose content was never kept: it gets no row, since an undo of one could only do harm.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from perdure.protocol.envelope import ToolError
from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import FileKind, NotCovered, TrackedFile
from perdure.text import codec, lines
from perdure.workspace.timeline.capture import Captured, ContentReader
from perdure.workspace.timeline.coverage import Reason
from perdure.workspace.timeline.not_covered import is_left_out, left_out_paths
from perdure.workspace.timeline.scan import Entry, Scan, parents

NOTHING: Final = hashlib.sha256(b"").digest()
"""The hash that stands for a directory."""
COUNTED_BYTES: Final = 1 << 20
"""Lines of larger files are not counted."""
COUNTED_IN_ALL: Final = 16 << 20
LARGE: Final = 1_000_000
"""Of larger files a new copy is kept at each change only as long as the store has room for it."""
HASH_MAX: Final = 1_000_000_000
"""A file that has outgrown the limits is hashed up to this size, so that its last covered version can be restored."""


class State(NamedTuple):
    """What is at a path. `mode` is None where nobody knows it."""

    kind: FileKind
    sha: bytes
    mode: int | None


class PlannedChange(NamedTuple):
    """`after` is None for a file that is gone. `last_seq` is the newest row of the path when this was planned.
    `content` is None for a directory, and where the content is not kept."""

    path: str
    before: State | None
    after: State | None
    size: int
    content: Captured | None
    entry: Entry | None
    tracked: TrackedFile | None
    last_seq: int | None
    lines: tuple[int, int] | None
    """Added and removed, of a text; None where that is too large to count."""
    made_with: Row | None = None
    """Of a folder that one of Perdure's own tools made: the row of the file for which it did."""


class Plan(NamedTuple):
    """`refreshed` are files that are the same as before, or as Perdure's own tools left them, with other times.
    `unread` are files without a content in the store that are to be captured: nothing is known of what they were.
    `unstable` are paths of files that were gone when they were read, or kept changing."""

    changes: list[PlannedChange]
    refreshed: list[TrackedFile]
    untracked: list[str]
    unread: list[Entry]
    not_covered: dict[str, NotCovered]
    unstable: list[str]

    def paths(self) -> set[str]:
        """Those that it says something about."""
        tracked = {file.path for file in self.refreshed}
        return {change.path for change in self.changes} | tracked | {*self.untracked}


class Planner:
    """`is_first`: no observation was made before. `left_out` is what the last one did not cover. `fetched` are contents by
    their hash that are not in the store yet. `room` are the bytes that new files may have together, `large_room` those of
    new versions of large files."""

    def __init__(
        self,
        journal: Journal,
        reader: ContentReader,
        tracked: Mapping[str, TrackedFile],
        left_out: Iterable[NotCovered],
        fetched: Mapping[bytes, bytes],
        *,
        is_first: bool,
        room: int,
        large_room: int,
    ) -> None:
        self._journal = journal
        self._reader = reader
        self._tracked = tracked
        self._left_out = left_out_paths(left_out)
        self._fetched = fetched
        self._is_first = is_first
        self._room = room
        self._large_room = large_room
        self._last: dict[str, Row] | None = None
        self._counted = 0
        self._changes: list[PlannedChange] = []
        self._refreshed: list[TrackedFile] = []
        self._untracked: list[str] = []
        self._unread: list[Entry] = []
        self._unstable: list[str] = []
        self._reasons: dict[str, NotCovered] = {}
        self._explained: dict[str, Row] = {}  # folders that Perdure made for a file, with its row
        self._new_folders: list[Entry] = []

    def plan(self, scan: Scan) -> Plan:
        self._untracked += scan.left
        if self._is_first and len(scan.new) > 100:
            self._last = {row.path: row for row in self._journal.latest()}
        for entry in scan.new:
            self._plan_new(entry)
        for entry in scan.differing:
            self._plan_differing(entry)
        for entry in scan.outgrown:
            self._plan_outgrown(entry)
        for known in scan.gone:
            self._plan_gone(known)
        for entry in self._new_folders:
            self._plan_folder(entry)
        self._unread += scan.unread
        return Plan(
            self._changes, self._refreshed, self._untracked, self._unread, self._reasons, self._unstable
        )

    def _plan_new(self, entry: Entry) -> None:
        if entry.kind == "directory":
            self._new_folders.append(entry)
            return
        if entry.size > self._room or self._has_no_room(entry):
            self.leave_out(entry.path, "max_total")
            return
        self._room -= entry.size
        last = self._last_row(entry.path)
        if last is None and self._was_left_out(entry.path):
            self._unread.append(entry)
            return
        captured = self._read(entry)
        if captured is None:
            return
        before = _state_of(last) if last is not None else None
        if before is not None and (before.kind, before.sha) == (entry.kind, captured.content.digest):
            self._refreshed.append(captured.tracked())
            if last is not None:
                self._explained.update(dict.fromkeys(parents(entry.path), last))
            return
        self._add(captured, before, last)

    def _plan_folder(self, entry: Entry) -> None:
        last = self._last_row(entry.path)
        before = _state_of(last) if last is not None else None
        is_known = before is not None and before.kind == "directory"
        file = self._explained.get(entry.path)
        if is_known or (last is None and (file is not None or self._was_left_out(entry.path))):
            self._refreshed.append(entry.tracked(None, 0))
            return
        self._add_folder(entry, before, last, file)

    def _plan_differing(self, entry: Entry) -> None:
        known = self._tracked[entry.path]
        last = self._last_row(entry.path)
        before = _before(known, last)
        if entry.kind == "directory":
            if before is None or (before.kind, before.mode) != ("directory", entry.mode):
                self._add_folder(entry, before, last)
            else:
                self._refreshed.append(entry.tracked(None, 0))
            return
        if self._has_no_room(entry) and (before is None or self._reader.hash(entry) != before.sha):
            self.leave_out(entry.path, "max_total")
            self._plan_outgrown(entry)
            return
        captured = self._read(entry)
        if captured is None:
            if entry.path in self._reasons and _differs_in_mode_only(known, entry) and before is not None:
                self._add_mode(entry, before, known, last)
            return
        fresh = captured.entry
        is_same = before is not None and (before.kind, before.sha) == (fresh.kind, captured.content.digest)
        if is_same and before is not None and (fresh.kind == "link" or before.mode in (None, fresh.mode)):
            self._refreshed.append(captured.tracked())
        else:
            self._add(captured, before, last)

    def _plan_outgrown(self, entry: Entry) -> None:
        self._untracked.append(entry.path)
        last = self._last_row(entry.path)
        before = _before(self._tracked[entry.path], last)
        sha = self._reader.hash(entry) if before is not None and entry.size <= HASH_MAX else None
        if sha is None or before is None or before.sha == sha:
            return
        after = State("file", sha, entry.mode)
        self._changes.append(
            PlannedChange(entry.path, before, after, entry.size, None, entry, None, _seq(last), None)
        )

    def _plan_gone(self, known: TrackedFile) -> None:
        self._untracked.append(known.path)
        last = self._last_row(known.path)
        before = _before(known, last)
        if before is not None:
            lines = self._count_lines(before, None)
            self._changes.append(
                PlannedChange(known.path, before, None, 0, None, None, None, _seq(last), lines)
            )

    def _add(self, captured: Captured, before: State | None, last: Row | None) -> None:
        entry = captured.entry
        after = State(entry.kind, captured.content.digest, entry.mode if entry.kind == "file" else None)
        self._changes.append(
            PlannedChange(
                entry.path,
                before,
                after,
                captured.content.size,
                captured,
                entry,
                captured.tracked(),
                _seq(last),
                self._count_lines(before, captured),
            )
        )

    def _add_mode(self, entry: Entry, before: State, known: TrackedFile, last: Row | None) -> None:
        """Of a file that may not be read any more: its size, inode and mtime say that the content is the same."""
        if before.sha != known.sha:
            return
        after = before._replace(mode=entry.mode)
        tracked = entry.tracked(known.sha, time.time_ns())
        self._changes.append(
            PlannedChange(entry.path, before, after, entry.size, None, entry, tracked, _seq(last), (0, 0))
        )

    def _add_folder(
        self, entry: Entry, before: State | None, last: Row | None, made_with: Row | None = None
    ) -> None:
        after = State("directory", NOTHING, entry.mode)
        tracked = entry.tracked(None, 0)
        lines = self._count_lines(before, None)
        self._changes.append(
            PlannedChange(entry.path, before, after, 0, None, entry, tracked, _seq(last), lines, made_with)
        )

    def _count_lines(self, before: State | None, captured: Captured | None) -> tuple[int, int] | None:
        is_file = captured is not None and captured.entry.kind == "file"
        if captured is not None and before is not None and before.sha == captured.content.digest:
            return 0, 0
        new = captured.content.data if captured is not None and is_file else b""
        old: bytes | None = b""
        if before is not None and before.kind == "file":
            old = self._fetched.get(before.sha)
            if old is None:
                old = self._journal.content(before.sha)
        if old is None or new is None or max(len(old), len(new)) > COUNTED_BYTES:
            return None
        self._counted += len(old) + len(new)
        return count_lines(old, new) if self._counted <= COUNTED_IN_ALL else None

    def _read(self, entry: Entry) -> Captured | None:
        found = self._reader.read(entry)
        if isinstance(found, str):
            self.leave_out(entry.path, found)
            return None
        if found is None:
            self._unstable.append(entry.path)
        if found is not None and not found.was_kept and found.content.size > LARGE:
            self._large_room -= found.content.size
        return found

    def _has_no_room(self, entry: Entry) -> bool:
        return entry.kind == "file" and entry.size > LARGE and entry.size > self._large_room

    def leave_out(self, path: str, reason: Reason) -> None:
        self._reasons[path] = NotCovered(path, reason, 1)

    def _was_left_out(self, path: str) -> bool:
        return self._is_first or is_left_out(path, self._left_out)

    def _last_row(self, path: str) -> Row | None:
        return self._last.get(path) if self._last is not None else self._journal.last_of(path)


def count_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """How many lines are added and removed; none where one of the two is no text."""
    try:
        a, b = lines.split(codec.decode(old).body), lines.split(codec.decode(new).body)
    except ToolError:
        return 0, 0
    if not a or not b:
        return len(b), len(a)
    parts = lines.diff(a, b)
    return sum(part.b_end - part.b_start for part in parts), sum(part.a_end - part.a_start for part in parts)


def _before(known: TrackedFile, last: Row | None) -> State | None:
    """What was at the path of a tracked file; None where that is not known, or where the journal says it is gone
    already."""
    if last is not None:
        state = _state_of(last)
        return state if state is None or state.mode is not None else state._replace(mode=known.mode)
    if known.kind == "directory":
        return State("directory", NOTHING, known.mode)
    return State(known.kind, known.sha, known.mode) if known.sha is not None else None


def _differs_in_mode_only(known: TrackedFile, entry: Entry) -> bool:
    return known.mode != entry.mode and (known.kind, known.size, known.mtime_ns, known.inode) == (
        entry.kind,
        entry.size,
        entry.mtime_ns,
        entry.inode,
    )


def _state_of(row: Row) -> State | None:
    if row.new_sha is None:
        return None
    detail: dict[str, Any] = row.detail
    kind: FileKind = detail.get("kind", "file")
    return State(kind, row.new_sha, detail.get("file_mode"))


def _seq(row: Row | None) -> int | None:
    return row.seq if row is not None else None
