"""What the journal says happened, compared with what a trial saw: its rows, replayed, must give the tree at each moment."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.timeline.launcher import Launcher
from harness.timeline.shell import Tree, read_tree
from perdure.storage.journal import Filter
from perdure.storage.timeline import ANOTHER_PROGRAM
from perdure.worker.compose import Settings, open_write
from perdure.workspace.verify import verify
from perdure.workspace.workspace import Workspace

OWN_TOOLS: Final = "own tools"
_ALL_ROWS: Final = 1_000_000


class RecordedRow(msgspec.Struct, frozen=True):
    seq: int
    path: str
    client: str
    session: str
    txn: str | None
    op: str
    old: str | None
    new: str | None
    detail: dict[str, Any]

    @property
    def call(self) -> str | None:
        """The client's id of the call that made it. Only the first row of a change tells."""
        call: dict[str, Any] = self.detail.get("call", {})
        return call.get("call_id")


class Record(msgspec.Struct, frozen=True):
    """`calls` are the calls by their transaction. `missing` are wanted contents that the store does not have."""

    rows: list[RecordedRow]
    calls: dict[str, tuple[str | None, str]]
    not_covered: dict[str, str]
    problems: list[str]
    missing: list[str]
    texts: dict[str, bytes] = {}
    """The contents that the rows name, where they were asked for."""


def read_head(launcher: Launcher, root: Path) -> int:
    """The number of the newest row."""

    def read() -> int:
        workspace = _open(root)
        rows = workspace.journal.rows(Filter(), 1)
        workspace.close()
        return rows[0].seq if rows else 0

    return int(launcher.ask(read))


def read_record(launcher: Launcher, root: Path, contents: set[str], *, with_texts: bool = False) -> Record:
    """`contents` are hashes of contents that must be there."""

    def read() -> Record:
        workspace = _open(root)
        journal = workspace.journal
        rows = [
            RecordedRow(
                row.seq,
                row.path,
                row.client,
                row.session,
                row.txn,
                row.op,
                row.old_sha.hex() if row.old_sha is not None else None,
                row.new_sha.hex() if row.new_sha is not None else None,
                row.detail,
            )
            for row in reversed(journal.rows(Filter(), _ALL_ROWS))
        ]
        ended = [*journal.open_calls(), *journal.ended_calls(_ALL_ROWS)]
        calls: dict[str, tuple[str | None, str]] = {
            call.txn: (call.call_id, call.status) for call in ended if call.txn is not None
        }
        record = Record(
            rows,
            calls,
            {place.path: place.reason for place in journal.not_covered()},
            [problem.detail for problem in verify(workspace)],
            sorted(sha for sha in contents if not _is_kept(workspace, sha)),
            _read_texts(workspace, rows) if with_texts else {},
        )
        workspace.close()
        return record

    found: Record = launcher.ask(read, Record)
    return found


def _open(root: Path) -> Workspace:
    return open_write(Settings(workspaces=(str(root),), surfaces=("write",)), is_read_only=True)


def _read_texts(workspace: Workspace, rows: list[RecordedRow]) -> dict[str, bytes]:
    wanted = {sha for row in rows if row.detail.get("kind") != "directory" for sha in (row.old, row.new)}
    return {sha: workspace.store.load(sha) for sha in wanted if sha is not None and _is_kept(workspace, sha)}


def _is_kept(workspace: Workspace, sha: str) -> bool:
    try:
        return hashlib.sha256(workspace.store.load(sha)).hexdigest() == sha
    except Exception:
        return False


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


Digests = dict[str, tuple[str, int | None, str]]
"""Path -> kind, mode (None where the rows do not tell) and hash."""


def digests_of(tree: Tree) -> Digests:
    return {
        path: (kind, None if kind == "link" else mode, digest(content))
        for path, (kind, mode, content) in tree.items()
    }


def replay(first: Digests, rows: list[RecordedRow], after: int, until: int) -> Digests:
    """The tree that the rows with these numbers make of another one."""
    tree = dict(first)
    for row in rows:
        if not after < row.seq <= until or not row.path:
            continue
        if row.new is None:
            tree.pop(row.path, None)
            continue
        known = tree.get(row.path)
        kind = row.detail.get("kind", "file")
        mode = row.detail.get("file_mode", known[1] if known is not None and known[0] == kind else None)
        tree[row.path] = (kind, None if kind == "link" else mode, row.new)
    return tree


def differences(expected: Digests, found: Digests) -> list[str]:
    lines = []
    for path in sorted({*expected, *found}):
        one, other = expected.get(path), found.get(path)
        if one is None or other is None or not _is_same(one, other):
            lines.append(f"{path}: {_shown(one)} expected, {_shown(other)} found")
    return lines


def _is_same(one: tuple[str, int | None, str], other: tuple[str, int | None, str]) -> bool:
    is_mode_same = one[1] == other[1] or None in (one[1], other[1])
    return (one[0], one[2]) == (other[0], other[2]) and is_mode_same


def _shown(state: tuple[str, int | None, str] | None) -> str:
    if state is None:
        return "nothing"
    kind, mode, sha = state
    return f"{kind} {mode or 0:o} {sha[:8]}"


def owner_of(record: Record, row: RecordedRow) -> str | None:
    """The call whose change a row belongs to; None for another program, or an own tool."""
    found = record.calls.get(row.txn or "")
    return found[0] if found is not None else None


def sharers_of(record: Record, row: RecordedRow) -> set[str]:
    """All calls that a row names as its authors: its part of a change begins with a row that tells."""
    owner = owner_of(record, row)
    if owner is None:
        return set()
    told: set[str] = {owner}
    for other in record.rows:
        if other.txn == row.txn and other.seq <= row.seq and "call" in other.detail:
            told = {owner, *other.detail["call"].get("shared_with", ())}
    return told


class Moment(msgspec.Struct, frozen=True):
    """An acknowledged hook. `author` is who made the changes since the moment before: the id of a call, another program,
    `OWN_TOOLS`, or empty where that cannot be known."""

    head: int
    tree: Digests
    author: str


class Witness:
    """Keeps its own copy of the tree at each acknowledged hook, and compares the journal with them in the end."""

    def __init__(self, launcher: Launcher, root: Path) -> None:
        self._launcher = launcher
        self._root = root
        self._contents: set[str] = set()
        self.moments: list[Moment] = []

    def see(self, author: str) -> None:
        tree = digests_of(read_tree(self._root))
        self.moments.append(Moment(read_head(self._launcher, self._root), tree, author))
        self._contents |= {sha for kind, _, sha in tree.values() if kind == "file"}

    def judge(self) -> list[str]:
        record = read_record(self._launcher, self._root, self._contents)
        wrong = [f"verify: {problem}" for problem in record.problems]
        wrong += [f"kept: {sha} is not in the store" for sha in record.missing]
        first = self.moments[0]
        for former, moment in pairwise(self.moments):
            lines = differences(moment.tree, replay(first.tree, record.rows, first.head, moment.head))
            if lines:
                wrong.append(f"true: at row {moment.head}: {lines[:4]}")
            for row in record.rows:
                if moment.author and row.path and former.head < row.seq <= moment.head:
                    is_foreign = row.client == ANOTHER_PROGRAM
                    authors = sharers_of(record, row) or {row.client if is_foreign else OWN_TOOLS}
                    if moment.author not in authors:
                        wrong.append(f"whose: row {row.seq} of {row.path}: {authors}, not {moment.author}")
        return wrong

    def first_row(self) -> int | None:
        """The first after the first moment."""
        rows = read_record(self._launcher, self._root, set()).rows
        return next((row.seq for row in rows if row.seq > self.moments[0].head), None)

    def compare_with_first(self) -> list[str]:
        return differences(self.moments[0].tree, digests_of(read_tree(self._root)))


def is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)
