"""Rewind: the workspace as before a change. All changes from that one on are taken back, by any agent or program."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from msgspec import UNSET

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.journal import Filter, Journal, Row
from perdure.workspace.entries import EntryState, state_after, state_before
from perdure.workspace.errors import NothingToUndo
from perdure.workspace.planning import PlanView
from perdure.workspace.timeline.git_head import read_head
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.undo.changes import find_change
from perdure.workspace.undo.result import AuthorTotals, UndoResult, check_applies
from perdure.workspace.undo.revert import Authors, Reversal, commit_reversal
from perdure.workspace.workspace import Workspace, new_transaction_id

_PAGE: Final = 500
_SKIPPED: Final = frozenset({"protected_path"})
"""What only its owner may write stays as it is."""


class RewindTarget(msgspec.Struct, frozen=True, kw_only=True):
    """From the change with this id on, or from a time on; with `path` only what is at it or beneath it."""

    change: str | None = None
    since: int | None = None
    path: str | None = None


def rewind(workspace: Workspace, call: Call, target: RewindTarget, *, is_dry_run: bool = False) -> UndoResult:
    """Take back every change from the target on, all or none. Edits that are not recorded yet are recorded first, so that
    they are taken back and do not collide. Raises WorkspaceError, StorageError, ToolError."""
    _record_edits(workspace)
    return commit_reversal(workspace, call, RewindPlan(workspace, call, target, is_dry_run=is_dry_run))


def _record_edits(workspace: Workspace) -> None:
    """Of other programs, since the last observation. Before the first one it is not known what the files were."""
    if workspace.timeline.enabled and workspace.journal.last_observation() is not None:
        Recorder(workspace).observe()


class RewindPlan:
    paths: frozenset[str] = frozenset()

    def __init__(self, workspace: Workspace, call: Call, target: RewindTarget, *, is_dry_run: bool) -> None:
        self._workspace = workspace
        self._call = call
        self._target = target
        self._is_dry_run = is_dry_run
        self._txn = new_transaction_id()
        self._head = read_head(workspace.roots[0].path)

    def stage(self, tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        journal = self._workspace.journal
        rows = _rows_from(self._workspace, self._target)
        effective = _effective(rows)
        if not effective:
            raise NothingToUndo
        reversal = Reversal(
            self._workspace,
            tree,
            self._call,
            op="undo",
            txn=self._txn,
            origins=_origins(tree, rows),
            skipped_reasons=_SKIPPED,
            is_preview=self._is_dry_run,
        )
        head, head_then = self._head, _head_then(rows)
        result = msgspec.structs.replace(
            reversal.run(effective),
            by_author=_by_author(journal, effective),
            not_covered=journal.not_covered(),
            head={"from": head, "to": head_then} if head and head_then and head != head_then else UNSET,
        )
        check_applies(result, is_dry_run=self._is_dry_run)
        payload: dict[str, Any] = msgspec.to_builtins(result)
        return payload


def _rows_from(workspace: Workspace, target: RewindTarget) -> list[Row]:
    """Every row from the change or time on, newest first; with a path only those of it and beneath it."""
    journal = workspace.journal
    first = find_change(journal, target.change)[0].seq if target.change is not None else None
    path = workspace.journal_name(target.path) if target.path is not None else None
    rows: list[Row] = []
    before: int | None = None
    while page := journal.rows(Filter(since=target.since, before=before), _PAGE):
        rows += (row for row in page if (first is None or row.seq >= first) and _is_beneath(row.path, path))
        before = page[-1].seq
        if first is not None and before <= first:
            break
    return rows


def _is_beneath(path: str, folder: str | None) -> bool:
    return folder is None or path == folder or path.startswith(f"{folder}/")


def _effective(rows: list[Row]) -> list[Row]:
    """Those that say what the workspace is now. A change and its undo, both of which are to go, say nothing.

    An undo of a row is newer and of the same file, so it is among them."""
    oldest = rows[-1].seq if rows else 0
    is_undone: dict[int, bool] = {}
    found: list[Row] = []
    for row in rows:
        is_effective = not is_undone.get(row.seq, False)
        if row.undoes is not None:
            is_undone.setdefault(row.undoes, is_effective and not _changes_nothing(row))
        if is_effective and row.path and (row.undoes is None or row.undoes < oldest):
            found.append(row)
    return found


def _changes_nothing(row: Row) -> bool:
    """An undo that left everything as it was, a directory in use or a mode that was changed again: it took nothing back."""
    return state_before(row) == state_after(row) and "file_mode" not in row.detail


def _origins(tree: PlanView, rows: list[Row]) -> dict[str, EntryState | None]:
    """What each file was before the first of its rows, where it still is what the last of them says."""
    newest: dict[str, Row] = {}
    oldest: dict[str, Row] = {}
    for row in rows:
        newest.setdefault(row.path, row)
        oldest[row.path] = row
    origins: dict[str, EntryState | None] = {}
    for path, row in newest.items():
        try:
            known = tree.lookup_entry(path)
        except JournalError:
            raise
        except (ToolError, StorageError):
            continue  # it is refused, or waits for recovery, where its rows are taken back
        if known.state == state_after(row):
            origins[path] = state_before(oldest[path])
    return origins


def _by_author(journal: Journal, rows: list[Row]) -> list[AuthorTotals]:
    """How many changes and files of each client and agent are taken back."""
    authors = Authors(journal)
    files: dict[tuple[str, str | None], set[str]] = {}
    changes: dict[tuple[str, str | None], set[str]] = {}
    for row in rows:
        call = authors.call_of(row)
        author = (call.client, call.agent) if call is not None else (row.client, None)
        files.setdefault(author, set()).add(row.path)
        changes.setdefault(author, set()).add(row.txn or str(row.seq))
    counted = Counter({author: len(paths) for author, paths in files.items()})
    return [
        AuthorTotals(
            client=client,
            agent=agent if agent is not None else UNSET,
            changes=len(changes[client, agent]),
            files=count,
        )
        for (client, agent), count in counted.most_common()
    ]


def _head_then(rows: list[Row]) -> str | None:
    """Git's HEAD before the first of these changes that tells."""
    return next((row.detail["head"] for row in reversed(rows) if "head" in row.detail), None)
