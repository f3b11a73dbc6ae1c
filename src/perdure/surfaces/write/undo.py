"""`undo` and redo: changes taken back, also under later ones, and nothing half-done."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again, call_tool, either
from perdure.protocol.tools import arg
from perdure.storage.journal import Journal, Row
from perdure.storage.timeline import ChangeFilter
from perdure.surfaces.write.since import parse_since
from perdure.text.printable import make_printable
from perdure.workspace.change import PlanFunction
from perdure.workspace.planning import PlanView
from perdure.workspace.undo.changes import (
    find_change,
    is_effective,
    newest_first,
    newest_session_with_turns,
    rows_of,
    sequence,
)
from perdure.workspace.undo.revert import Refused, Reversal, payload_of
from perdure.workspace.workspace import Workspace, new_transaction_id

PAGE: Final = 100
MOST: Final = 1000
ANY_SESSION: Final = "any"
_TAKES_BACK: Final = ("undo", "redo")


class Undo(msgspec.Struct, frozen=True):
    n: Annotated[int, arg(ge=1, le=MOST)] = 1
    path: Annotated[str, arg(path="relative")] | None = None
    session: Annotated[str, arg("Default: yours; any: all.")] | None = None
    client: Annotated[str, arg()] | None = None
    since: Annotated[str, arg("10m, 2h, today, ISO 8601.")] | None = None
    change: (
        Annotated[str, arg("This change, or these (12,11), of any agent.", aliases=("journal_id",))] | None
    ) = None
    turn: Annotated[int, arg(ge=1)] | None = None
    agent: Annotated[str, arg()] | None = None
    redo: Annotated[bool, arg("Undo the last undo.")] = False
    dry_run: Annotated[bool, arg()] = False


def undo(workspace: Workspace, given: Undo, call: Call) -> dict[str, Any]:
    """Which changes are taken back is decided under the lock: another undo may have taken them back meanwhile."""
    identity = new_transaction_id()
    since = parse_since(given.since)

    def plan(tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        session = _session(workspace, given, call)
        rows = _select(workspace, given, session, since)
        if not rows:
            raise _nothing(given, session == call.session)
        reversal = Reversal(workspace, tree, call, op="redo" if given.redo else "undo", txn=identity)
        more: dict[str, Any] = {"redo": True} if given.redo else {}
        if given.turn is not None:
            more["session"] = session or ANY_SESSION
        return payload_of(reversal.run(rows), is_dry_run=given.dry_run, **more)

    try:
        return workspace.commit(
            call, PlanFunction(frozenset({given.path} if given.path is not None else ()), plan)
        ).result()
    except Refused as refused:
        return refused.payload


# --- which changes --------------------------------------------------------------------------------------------


def _session(workspace: Workspace, given: Undo, call: Call) -> str | None:
    """Whose changes: this session's, unless the call names others. A turn is one of the session that changed something
    last."""
    if given.session is not None:
        return None if given.session == ANY_SESSION else given.session
    if given.turn is not None:
        return newest_session_with_turns(workspace.journal, given.client, given.agent)
    return call.session if given.client is None and given.agent is None else None


def _nothing(given: Undo, is_own: bool) -> ToolError:
    whose = "of this session " if is_own else ""
    what = "undo" if given.redo else "change"
    named = {
        "path": given.path,
        "client": given.client,
        "agent": given.agent,
        "turn": str(given.turn) if given.turn is not None else None,
        "since": given.since,
    }
    where = "".join(
        f" with {name}={make_printable(value)}" for name, value in named.items() if value is not None
    )
    return refuse(
        "not_found",
        "nothing_to_undo",
        f"nothing to take back: no {what} {whose}was found{where}.",
        next_step=call_tool("journal_tail")
        if not whose
        else either(call_again(session=ANY_SESSION), call_tool("journal_tail")),
        suggested_action="reread",
    )


def _select(workspace: Workspace, given: Undo, session: str | None, since: int | None) -> list[Row]:
    """The rows to take back, newest first, whole changes at a time."""
    if given.change is not None:
        return _named(workspace.journal, given.change)
    wanted = ChangeFilter(
        path=workspace.journal_name(given.path) if given.path is not None else None,
        session=session,
        client=given.client,
        agent=given.agent,
        turn=given.turn,
        since=since,
    )
    takes_all = since is not None or given.turn is not None or given.agent is not None
    most = MOST if takes_all else given.n
    found: list[Row] = []
    changes = 0
    while changes < most and (page := workspace.journal.changes(wanted, PAGE)):
        for change in page:
            rows = [row for row in rows_of(workspace.journal, change) if is_effective(workspace.journal, row)]
            if not rows or not (rows[0].op == "undo" if given.redo else rows[0].op not in _TAKES_BACK):
                continue
            found += rows
            changes += 1
            if changes == most:
                break
        wanted = msgspec.structs.replace(wanted, before=page[-1].id)
    return newest_first(found)


def _named(journal: Journal, ids: str) -> list[Row]:
    """The changes with these ids: of any of their rows, or of their transactions."""
    found: list[Row] = []
    for identity in ids.split(","):
        rows = find_change(journal, identity.strip(), "change")
        effective = [row for row in rows if is_effective(journal, row)]
        seq = sequence(identity.strip())
        if not effective or (seq is not None and seq not in {row.seq for row in effective}):
            raise refuse(
                "conflict",
                "already_undone",
                f"change {make_printable(identity.strip())[:64]} was undone already.",
                next_step=call_tool("history", path=rows[0].path),
                suggested_action="abort",
            )
        found += effective
    return newest_first({row.seq: row for row in found}.values())
