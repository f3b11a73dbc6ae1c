"""`rewind`: the workspace as before a change. All changes from that one on are taken back, by any agent or program."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool
from perdure.protocol.tools import arg
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.journal import Filter, Journal, Row
from perdure.surfaces.write.reverting import Authors, Refused, Reverting, payload_of
from perdure.surfaces.write.since import parse_since
from perdure.surfaces.write.undo import find_change
from perdure.surfaces.write.write import journal_name, sequence
from perdure.text.printable import make_printable
from perdure.workspace.change import PlanFunction
from perdure.workspace.entries import EntryState, state_after, state_before
from perdure.workspace.planning import PlanView
from perdure.workspace.timeline.git_head import read_head
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.workspace import Workspace, new_transaction_id

PAGE: Final = 500
_SKIPPED: Final = frozenset({"protected_path"})
"""What only its owner may write stays as it is."""


class Rewind(msgspec.Struct, frozen=True):
    to: Annotated[str, arg("A change, or a time: 10m, 2h, today, ISO 8601.")]
    path: Annotated[str, arg(path="relative")] | None = None
    dry_run: Annotated[bool, arg()] = True


def rewind(workspace: Workspace, given: Rewind, call: Call) -> dict[str, Any]:
    """Edits that are not recorded yet are recorded first, so that they are taken back and do not collide."""
    _record_edits(workspace)
    identity = new_transaction_id()
    head = read_head(workspace.roots[0].path)

    def plan(tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        journal = workspace.journal
        rows = _rows_from(workspace, given)
        effective = _effective(rows)
        if not effective:
            raise _nothing(given)
        reverting = Reverting(
            workspace,
            tree,
            call,
            op="undo",
            txn=identity,
            origins=_origins(tree, rows),
            skipped_reasons=_SKIPPED,
        )
        more: dict[str, Any] = {
            "by_author": _by_author(journal, effective),
            "not_covered": [msgspec.to_builtins(place) for place in journal.not_covered()],
        }
        then = _head_then(rows)
        if then is not None and head is not None and then != head:
            more["head"] = {"from": head, "to": then}
        return payload_of(reverting.run(effective), is_dry_run=given.dry_run, **more)

    try:
        return workspace.commit(call, PlanFunction(frozenset(), plan)).result()
    except Refused as refused:
        return refused.payload


def _record_edits(workspace: Workspace) -> None:
    """Of other programs, since the last observation. Before the first one it is not known what the files were."""
    if workspace.timeline.enabled and workspace.journal.last_observation() is not None:
        Recorder(workspace).observe()


def _rows_from(workspace: Workspace, given: Rewind) -> list[Row]:
    """Every row from the change or time on, newest first; with a path only those of it and beneath it."""
    journal = workspace.journal
    text = given.to.strip().removeprefix("#")
    first = since = None
    if sequence(text) is not None or journal.transaction(text):
        first = find_change(journal, text, "to")[0].seq
    else:
        since = _parse_time(text)
    path = journal_name(workspace, given.path) if given.path is not None else None
    found: list[Row] = []
    before: int | None = None
    while page := journal.rows(Filter(since=since, before=before), PAGE):
        found += (row for row in page if (first is None or row.seq >= first) and _is_beneath(row.path, path))
        before = page[-1].seq
        if first is not None and before <= first:
            break
    return found


def _parse_time(text: str) -> int | None:
    try:
        return parse_since(text)
    except ToolError:
        raise refuse(
            "invalid_input",
            "bad_time",
            "to must be the id of a change, or a time such as 2026-11-17T13:00Z, 10m, 2h or today.",
            next_step=call_again(to=FILL),
            suggested_action="fix_syntax",
        ) from None


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


def _by_author(journal: Journal, rows: list[Row]) -> list[dict[str, Any]]:
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
        {
            "client": author[0],
            **({"agent": author[1]} if author[1] is not None else {}),
            "changes": len(changes[author]),
            "files": count,
        }
        for author, count in counted.most_common()
    ]


def _head_then(rows: list[Row]) -> str | None:
    """Git's HEAD before the first of these changes that tells."""
    return next((row.detail["head"] for row in reversed(rows) if "head" in row.detail), None)


def _nothing(given: Rewind) -> ToolError:
    where = f" of {make_printable(given.path)}" if given.path is not None else ""
    return refuse(
        "not_found",
        "nothing_to_undo",
        f"nothing to take back: no change{where} since {make_printable(given.to)[:64]} is in force.",
        next_step=call_tool("journal_tail"),
        suggested_action="reread",
    )
