"""What a hook answers its client about reservations: a call that is refused, or something that the agent is to know.

A call of the client's own editing tools to a path that another owner holds is refused before it runs. What a shell command
will change is not known before it has run: the change is told to the agent that ran it and to the owner, and put back
where the settings say so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from perdure.protocol.calls import Call, LocalCall
from perdure.storage.errors import StateError
from perdure.storage.journal import Filter, Journal, Row
from perdure.storage.reservations import Notice
from perdure.storage.timeline import CallRecord
from perdure.text.printable import make_printable
from perdure.workspace.planning import PlanView
from perdure.workspace.reservations.access import has_notices, resolve_path, sentence
from perdure.workspace.reservations.rules import Held
from perdure.workspace.timeline.event import HookAnswer, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.undo.changes import newest_first
from perdure.workspace.undo.result import check_applies
from perdure.workspace.undo.revert import Reversal, commit_reversal
from perdure.workspace.workspace import Workspace, new_transaction_id

log = logging.getLogger(__name__)

ENDS: Final = ("after_tool", "failed_tool")
ENDED_CALLS: Final = 50
MOST_ROWS: Final = 10_000
PATHS_TOLD: Final = 10

T = TypeVar("T")


def handle_event(workspace: Workspace, recorder: Recorder, event: HookEvent) -> HookAnswer:
    """Record an event, and say what the client is to be told. A refused call is not recorded: it does not run. Reservations
    that cannot be reached keep no call from running."""
    call = recorder.calls.find_open(event) if event.kind in ENDS else None
    try:
        if event.kind == "before_tool" and (refusal := _refuse(workspace, event)):
            return HookAnswer(refusal=refusal)
    except StateError as error:
        log.warning("reservations were not checked before a call: %s", error.detail)
    recorder.handle(event)
    if event.process is None:
        return HookAnswer()
    try:
        return HookAnswer(notice="\n".join(_use_book(workspace, event, event.process, call)))
    except StateError as error:
        log.warning("reservations were not checked after a call: %s", error.detail)
        is_call = event.kind in ENDS and event.host is None
        return HookAnswer(notice=f"reservations were not checked: {error.detail}" if is_call else "")


def _use_book(workspace: Workspace, event: HookEvent, process: str, call: CallRecord | None) -> list[str]:
    """What the agent is told after an event was recorded."""
    reservations = workspace.reservations
    if event.kind == "session_end":
        _update(workspace, lambda: reservations.release_all(process))
    if event.kind not in ENDS or event.host is not None:
        return []
    book = reservations.active_book()
    notices: list[str] = []
    if event.own_tool is None and book.reservations:
        notices = _tell_owners(workspace, event, process, call)
    if has_notices(book, owner := reservations.owner_of_process(process)):
        notices += _update(workspace, lambda: reservations.take_notices(owner))
    return notices


def _update(workspace: Workspace, work: Callable[[], T]) -> T:
    return work() if workspace.reservations.is_shared else workspace.committer.transact(work)


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


def _tell_owners(workspace: Workspace, event: HookEvent, process: str, call: CallRecord | None) -> list[str]:
    """A call that changed what others hold: they are told at their next call. Returns what its own agent is told. A change
    that the owner's own call may have made is told, but not put back."""
    call = call or _find_ended(workspace.journal, event)
    if call is None or workspace.reservations.settings.mode == "off":
        return []
    made = _rows_of_call(workspace.journal, call)
    book, owner = workspace.reservations.active_book(), workspace.reservations.owner_of_process(process)
    held = [
        one
        for path in dict.fromkeys(row.path for row, _ in made)
        for one in workspace.reservations.blocking_in(book, path, owner)
    ]
    if not held:
        return []
    then = ""
    if workspace.reservations.settings.shell == "restore":
        then = _restore(workspace, event, held, made)
    shown = make_printable((event.command or event.tool or "a call")[:200])
    notices = [
        Notice(
            one.by.owner,
            f"{make_printable(one.path)}, which you reserved, was changed by {event.client}: {shown}{then}",
        )
        for one in held
    ]
    _update(workspace, lambda: workspace.reservations.add_notices(notices))
    return [f"this call changed a reserved file: {sentence(one)}{then}" for one in held[:PATHS_TOLD]]


def _find_ended(journal: Journal, event: HookEvent) -> CallRecord | None:
    for call in journal.ended_calls(ENDED_CALLS):
        if (call.session, call.call_id, call.tool) == (event.session, event.call_id, event.tool):
            return call
    return None


def _rows_of_call(journal: Journal, call: CallRecord) -> list[tuple[Row, tuple[str, ...]]]:
    """The rows that a call made or may have made, oldest first, each with the names of the calls that share it. A part of a
    change begins with a row that names them."""
    name = call.call_id or str(call.id)
    rows: list[tuple[Row, tuple[str, ...]]] = []
    sharers: dict[str | None, tuple[str, ...]] = {}
    for row in reversed(journal.rows(Filter(since=call.begun), MOST_ROWS)):
        if "call" in row.detail:
            told = row.detail["call"]
            sharers[row.txn] = tuple(told.get("shared_with", ()))
            if row.txn != call.txn and sharers[row.txn]:
                sharers[row.txn] = (told.get("call_id", ""), *sharers[row.txn])
        others = sharers.get(row.txn, ())
        if row.op == "native" and (row.txn == call.txn or name in others):
            rows.append((row, tuple(other for other in others if other != name)))
    return rows


def _restore(
    workspace: Workspace, event: HookEvent, held: list[Held], made: list[tuple[Row, tuple[str, ...]]]
) -> str:
    """Put back what no call of an owner can have made. Returns what is said of it."""
    journal, reservations = workspace.journal, workspace.reservations
    calls = [*journal.open_calls(), *journal.ended_calls(ENDED_CALLS)]
    processes = {known.call_id or str(known.id): known.process for known in calls}
    owners = {one.path: {other.by.owner for other in held if other.path == one.path} for one in held}

    def is_foreign(path: str, sharers: tuple[str, ...]) -> bool:
        known = [processes.get(name) for name in sharers]
        return all(
            process is not None and reservations.owner_of_process(process) not in owners[path]
            for process in known
        )

    rows = [row for row, sharers in made if row.path in owners and is_foreign(row.path, sharers)]
    rows = [row for row in rows if journal.undone_by(row.seq) is None]
    if not rows:
        return (
            "; it was not put back: a call of the owner may have made the change, or it was put back already"
        )
    return _put_back(workspace, event, rows)


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
