"""What a hook answers its client about reservations: a call that is refused, or something that the agent is to know.

A call of the client's own editing tools to a path that another owner holds is refused before it runs. What a shell command
will change is not known before it has run: the change is told to the agent that ran it and to the owner, and put back
where the settings say so.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.protocol.calls import Call, LocalCall
from perdure.storage.journal import Journal, Row
from perdure.storage.reservations import Notice
from perdure.text.printable import make_printable
from perdure.workspace.planning import PlanView
from perdure.workspace.reservations.access import resolve_path, sentence
from perdure.workspace.timeline.event import HookAnswer, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.undo.changes import newest_first
from perdure.workspace.undo.result import check_applies
from perdure.workspace.undo.revert import Reversal, commit_reversal
from perdure.workspace.workspace import Workspace, new_transaction_id

ENDED_CALLS: Final = 50
PATHS_TOLD: Final = 10


def handle_event(workspace: Workspace, recorder: Recorder, event: HookEvent) -> HookAnswer:
    """Record an event, and say what the client is to be told. A refused call is not recorded: it does not run."""
    if event.kind == "before_tool" and (refusal := _refuse(workspace, event)):
        return HookAnswer(refusal=refusal)
    recorder.handle(event)
    if event.process is None:
        return HookAnswer()
    process = event.process
    if event.kind == "session_end":
        workspace.committer.transact(lambda: workspace.reservations.release_all(process))
    if event.kind not in ("after_tool", "failed_tool") or event.host is not None:
        return HookAnswer()
    notices = _tell_owners(workspace, event, process) if event.own_tool is None else []
    if any(notice.owner == process for notice in workspace.journal.reservation_book().notices):
        notices += workspace.committer.transact(lambda: workspace.reservations.take_notices(process))
    return HookAnswer(notice="\n".join(notices))


def _refuse(workspace: Workspace, event: HookEvent) -> str:
    """Perdure's own tools refuse by themselves. Without the client's process its own paths could not be told apart."""
    if event.own_tool is not None or event.command is not None or event.process is None:
        return ""
    for path in event.paths:
        name = resolve_path(workspace.roots, path, event.cwd)
        holders = workspace.reservations.find_blocking(name, event.process) if name else []
        if holders:
            return f"{sentence(holders[0])}. Work on other files, or try again later."
    return ""


def _tell_owners(workspace: Workspace, event: HookEvent, process: str) -> list[str]:
    """A call that changed what others hold: they are told at their next call. Returns what its own agent is told."""
    rows = _rows_of_call(workspace.journal, event)
    held = [
        one
        for path in dict.fromkeys(row.path for row in rows)
        for one in workspace.reservations.find_blocking(path, process)
    ]
    if not held:
        return []
    then = ""
    if workspace.reservations.settings.shell == "restore":
        paths = {one.path for one in held}
        then = _put_back(workspace, event, [row for row in rows if row.path in paths])
    call = make_printable((event.command or event.tool or "a call")[:200])
    notices = [
        Notice(
            one.by.owner,
            f"{make_printable(one.path)}, which you reserved, was changed by {event.client}: {call}{then}",
        )
        for one in held
    ]
    workspace.committer.transact(lambda: workspace.reservations.add_notices(notices))
    return [f"this call changed a reserved file: {sentence(one)}{then}" for one in held[:PATHS_TOLD]]


def _rows_of_call(journal: Journal, event: HookEvent) -> list[Row]:
    if not journal.reservation_book().reservations:
        return []
    for call in journal.ended_calls(ENDED_CALLS):
        if (call.session, call.call_id, call.tool) == (event.session, event.call_id, event.tool):
            return journal.transaction(call.txn) if call.txn is not None and call.seq is not None else []
    return []


def _put_back(workspace: Workspace, event: HookEvent, rows: list[Row]) -> str:
    """Take back rows of a call. Returns what is said of it."""
    call = LocalCall("perdure", event.session, tool="undo")
    call.force = True  # for the owner of the reservation
    result = commit_reversal(workspace, call, PutBackPlan(workspace, call, rows))
    if result.conflicts:
        return "; it could not be put back, because it was changed again"
    return f"; it was put back (change {result.journal_ids[0]})"


class PutBackPlan:
    """What a call changed in files that others hold is taken back, all or nothing."""

    paths: frozenset[str] = frozenset()

    def __init__(self, workspace: Workspace, call: Call, rows: list[Row]) -> None:
        self._workspace = workspace
        self._call = call
        self._rows = newest_first(rows)
        self._txn = new_transaction_id()

    def stage(self, tree: PlanView) -> dict[str, Any]:
        tree.claims.claim_journal()
        result = Reversal(self._workspace, tree, self._call, op="undo", txn=self._txn).run(self._rows)
        check_applies(result, is_dry_run=False)
        payload: dict[str, Any] = msgspec.to_builtins(result)
        return payload
