"""What a hook answers its client about reservations: a call that is refused, or something that the agent is to know.

A call of the client's own editing tools to a path that another owner holds is refused before it runs. What a shell command
will change is not known before it has run: the change is told to the agent that ran it and to the owner.
"""

from __future__ import annotations

from typing import Final

from perdure.storage.reservations import Notice
from perdure.text.printable import make_printable
from perdure.workspace.reservations.access import resolve_path, sentence
from perdure.workspace.reservations.rules import Held
from perdure.workspace.timeline.event import HookAnswer, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.workspace import Workspace

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
        holders = workspace.reservations.find_writers(name, event.process) if name else []
        if holders:
            return f"{sentence(holders[0])}. Work on other files, or try again later."
    return ""


def _tell_owners(workspace: Workspace, event: HookEvent, process: str) -> list[str]:
    """A call that changed what others hold: they are told at their next call. Returns what its own agent is told."""
    held = _held_changes(workspace, event, process)
    if not held:
        return []
    call = make_printable((event.command or event.tool or "a call")[:200])
    notices = [
        Notice(
            one.by.owner,
            f"{make_printable(one.path)}, which you reserved, was changed by {event.client}: {call}",
        )
        for one in held
    ]
    workspace.committer.transact(lambda: workspace.reservations.add_notices(notices))
    return [f"this call changed a reserved file: {sentence(one)}" for one in held[:PATHS_TOLD]]


def _held_changes(workspace: Workspace, event: HookEvent, process: str) -> list[Held]:
    journal = workspace.journal
    if not journal.reservation_book().reservations:
        return []
    for call in journal.ended_calls(ENDED_CALLS):
        if (call.session, call.call_id, call.tool) == (event.session, event.call_id, event.tool):
            rows = journal.transaction(call.txn) if call.txn is not None and call.seq is not None else []
            paths = dict.fromkeys(row.path for row in rows if row.path)
            return [held for path in paths for held in workspace.reservations.find_writers(path, process)]
    return []
