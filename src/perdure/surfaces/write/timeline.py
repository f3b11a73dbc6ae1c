"""`timeline`: what changed in the workspace, change by change, with its author, its tool and its size."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.protocol.tools import arg
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.journal import Digest, Row
from perdure.storage.timeline import ChangeFilter, ChangeSummary
from perdure.surfaces.write.since import parse_since
from perdure.text import lines
from perdure.text.times import format_time
from perdure.workspace.changed_files import ChangedFile, fold
from perdure.workspace.planning import canonical
from perdure.workspace.undo.changes import newest_session_with_turns, rows_of, sequence
from perdure.workspace.undo.selection import ANY_SESSION
from perdure.workspace.workspace import Workspace

MOST_CHANGES: Final = 1000
MOST_PATHS: Final = 100
"""Named of one change. `files` counts all of them."""
MOST_ROWS: Final = 500
"""Read of one change, to name its paths and to count its lines."""
MOST_PLACES: Final = 1000
"""That are not covered."""
MOST_COMPARED: Final = 8 << 20
"""Bytes that one answer compares to count lines, of the newest changes first; `MOST_OF_FILE` of them in one file."""
MOST_OF_FILE: Final = 1 << 20
# The tool that writes rows of this op, where it has another name.
_TOOLS: Final = {
    "write": "safe_write",
    "compose": "chunk_compose",
    "handoff": "handoff_write",
    "redo": "undo",
    "native": "",  # another program's own
}
_IN_TRANSACTION: Final = frozenset({"write", "edit", "patch", "move", "delete"})


class Timeline(msgspec.Struct, frozen=True):
    n: Annotated[int, arg(ge=1, le=MOST_CHANGES)] = 20
    turn: Annotated[int, arg("Of that session, or of the newest.", ge=1)] | None = None
    agent: Annotated[str, arg("A subagent.")] | None = None
    session: Annotated[str, arg()] | None = None
    client: Annotated[str, arg()] | None = None
    path: Annotated[str, arg("File or folder.", path="relative")] | None = None
    since: Annotated[str, arg("10m, 2h, today, ISO 8601.")] | None = None
    cursor: Annotated[str, arg("next_cursor of the page before.")] | None = None


def timeline(workspace: Workspace, given: Timeline, call: Call) -> dict[str, Any]:
    before = sequence(given.cursor) if given.cursor is not None else None
    if before is None and given.cursor is not None:
        raise refuse(
            "invalid_input",
            "bad_cursor",
            "cursor must be the next_cursor of an earlier answer.",
            next_step=call_again(cursor=None),
            suggested_action="fix_syntax",
        )
    wanted = ChangeFilter(
        client=given.client,
        session=given.session if given.session != ANY_SESSION else None,
        agent=given.agent,
        path=_named_path(workspace, given.path) if given.path is not None else None,
        since=parse_since(given.since),
        before=before,
    )
    payload: dict[str, Any] = {}
    if given.turn is not None:
        session = wanted.session or newest_session_with_turns(workspace.journal, wanted.client, wanted.agent)
        wanted = msgspec.structs.replace(wanted, turn=given.turn, session=session)
        payload["session"] = session
    changes = workspace.journal.changes(wanted, given.n + 1)
    line_counter = LineCounter(workspace)
    newest_first = [describe(workspace, change, line_counter) for change in changes[: given.n]]
    payload["changes"] = newest_first[::-1]
    if len(changes) > given.n:
        payload["next_cursor"] = str(changes[given.n - 1].id)
    payload["not_covered"] = [
        msgspec.structs.asdict(place) for place in workspace.journal.not_covered()[:MOST_PLACES]
    ]
    return payload


def _named_path(workspace: Workspace, path: str) -> str | None:
    """A file or folder as rows name it; None for the whole workspace."""
    root = workspace.roots[0].path
    name = canonical(workspace.roots, path.rstrip("/") or ".")
    relative = os.path.relpath(os.path.join(root, name), root)
    if relative == ".":
        return None
    return name if relative.startswith("../") else relative


# --- one change -------------------------------------------------------------------------------------------------


def describe(workspace: Workspace, change: ChangeSummary, line_counter: LineCounter) -> dict[str, Any]:
    """Whose change it is, when and how it was made, and what it changed."""
    rows = rows_of(workspace.journal, change, MOST_ROWS)
    files = fold(rows)
    paths = [file.path for file in files]
    if change.added is not None and change.removed is not None:
        counts: tuple[int, int] | None = (change.added, change.removed)
    else:
        counts = line_counter.count(files) if len(rows) < MOST_ROWS else None
    described: dict[str, Any] = {
        "id": str(change.id),
        "ts": format_time(change.ts),
        "client": change.client,
        "session": change.session,
        **_call(workspace, change, rows[0]),
        "status": _status(change),
        "files": change.files,
        "added": counts[0] if counts is not None else None,
        "removed": counts[1] if counts is not None else None,
        "paths": paths[:MOST_PATHS],
    }
    hidden = max(change.files, len(paths)) - MOST_PATHS
    if hidden > 0:
        described["more_paths"] = hidden
    if "head_after" in rows[0].detail:
        described["head"] = {"from": rows[0].detail.get("head"), "to": rows[0].detail["head_after"]}
    if "not_covered" in rows[0].detail:  # what was gone afterwards, and cannot be brought back
        described["not_covered"] = rows[0].detail["not_covered"]
    if change.txn is not None:
        described["transaction_id"] = change.txn
    return described


def _status(change: ChangeSummary) -> str:
    if change.is_undone:
        return "undone"
    if change.call is None:
        return "done"
    # A call that still runs has not finished either.
    return "unfinished" if change.call.status == "open" else change.call.status


def _call(workspace: Workspace, change: ChangeSummary, first: Row) -> dict[str, Any]:
    """The call that made it. The row tells of it too, where the record of the call is gone."""
    told: dict[str, Any] = first.detail.get("call", {})
    if (call := change.call) is not None:
        told = told | {name: getattr(call, name) for name in ("tool", "call_id", "agent", "turn", "command")}
    found = {
        name: told[name]
        for name in ("agent", "turn", "tool", "call_id", "command", "shared_with")
        if told.get(name) is not None
    }
    return found if "tool" in found else {**found, "tool": _own_tool(workspace, first)}


def _own_tool(workspace: Workspace, row: Row) -> str:
    invocation = workspace.journal.invocation(row.key) if row.key is not None else None
    if invocation is not None:
        return invocation.tool
    if row.txn is not None and row.op in _IN_TRANSACTION:
        return "transaction"
    return _TOOLS.get(row.op, row.op)


class LineCounter:
    """Counts the lines that changes added and removed, as long as there is little to compare."""

    def __init__(self, workspace: Workspace) -> None:
        self._store = workspace.store
        self._bytes_left = MOST_COMPARED

    def count(self, files: list[ChangedFile]) -> tuple[int, int] | None:
        """None where a content is too large, is kept no longer, or this answer has compared enough already."""
        added = removed = 0
        for file in files:
            if file.old_sha == file.new_sha or file.kind != "file":
                continue
            try:
                old, new = self._load(file.old_sha), self._load(file.new_sha)
            except JournalError:
                raise
            except (ToolError, StorageError):
                return None
            if old is None or new is None:
                return None
            for part in lines.diff(lines.split(old), lines.split(new)):
                added += part.b_end - part.b_start
                removed += part.a_end - part.a_start
        return added, removed

    def _load(self, sha: Digest | None) -> str | None:
        """A text; empty for a file that is not there, and for one that is no text."""
        if sha is None:
            return ""
        content = self._store.find(sha.hex())
        self._bytes_left -= content.size
        if content.size > MOST_OF_FILE or self._bytes_left < 0:
            return None
        data = self._store.load(sha.hex())
        return "" if b"\0" in data else data.decode("utf-8", "surrogateescape")
