"""The calls of tools that hooks tell of: their beginnings, their ends, and those whose end never came.

All that writes runs inside a transaction of the journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from perdure.platform.process_tree import has_ended
from perdure.storage.journal import Journal
from perdure.storage.timeline import CallRecord, NewCall
from perdure.workspace.paths.roots import Roots
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.named_paths import named_paths, redact
from perdure.workspace.timeline.own_changes import own_changes
from perdure.workspace.workspace import new_transaction_id

DAY_US: Final = 86_400 * 1_000_000
UNSEEN_US: Final = 60 * 1_000_000
"""How far back the rows of an own tool can be whose beginning no hook told."""
COMMAND_MAX: Final = 4000
NAME_MAX: Final = 200


class CallLog:
    """`clock` is the time of day, in seconds."""

    def __init__(self, journal: Journal, roots: Roots, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._roots = roots
        self._clock = clock

    def new_call(self, event: HookEvent) -> NewCall:
        """Calls of Perdure's own tools have no transaction: their rows have one, or need none."""
        return NewCall(
            client=event.client,
            session=event.session,
            tool=event.tool or event.own_tool or "",
            txn=None if event.own_tool is not None else new_transaction_id(),
            agent=event.agent,
            turn=self._journal.current_turn(event.client, event.session),
            call_id=event.call_id,
            command=_shorten(redact(event.command)) if event.command is not None else None,
            paths=named_paths(event, self._roots),
            process=event.host or event.process,
        )

    def find_open(self, event: HookEvent) -> CallRecord | None:
        """The call that an event is about: by the client's id of it, else the newest of the same agent and tool."""
        calls = [call for call in self._journal.open_calls() if _is_of_session(call, event)]
        if event.call_id is not None:
            calls = [call for call in calls if call.call_id == event.call_id]
        else:
            tool = event.tool or event.own_tool or ""
            calls = [call for call in calls if (call.agent, call.tool) == (event.agent, tool)]
        return calls[-1] if calls else None

    def end(self, event: HookEvent) -> None:
        call = self.find_open(event)
        if call is None:
            return
        if call.seq is None and not call.paths:
            self._journal.forget_call(call.id)
        else:  # one that names paths may have left a process behind that changes them later
            self._journal.update_call(call.id, status="done")

    def begin_turn(self, event: HookEvent) -> None:
        self.abandon(event, whole_session=False)
        self._journal.begin_turn(event.client, event.session)
        self._journal.forget_calls(int(self._clock() * 1_000_000) - DAY_US)

    def abandon(self, event: HookEvent, *, whole_session: bool) -> None:
        """The ends of these calls will not come: of an agent that has stopped, or of all agents of a session."""
        for call in self._journal.open_calls():
            if _is_of_agent(call, event) or (whole_session and _is_of_session(call, event)):
                self._give_up(call)

    def _give_up(self, call: CallRecord) -> None:
        if call.seq is None and not call.paths:
            self._journal.forget_call(call.id)
        else:
            self._journal.update_call(call.id, status="unfinished")

    def give_up_dead(self) -> None:
        """Calls of a client that is gone, and those older than a day."""
        before = int(self._clock() * 1_000_000) - DAY_US
        for call in self._journal.open_calls():
            if call.begun < before or (call.process is not None and has_ended(call.process)):
                self._give_up(call)

    def link_own_rows(self, event: HookEvent) -> None:
        call = self.find_open(event)
        since = call.begun if call is not None else int(self._clock() * 1_000_000) - UNSEEN_US
        if call is None:
            call = self._journal.begin_call(self.new_call(event))
        changes = list(own_changes(self._journal, event.response, since))
        if not changes:
            self._journal.forget_call(call.id)
            return
        for number, row in enumerate(changes):
            if number:
                call = self._journal.begin_call(self.new_call(event))
            self._journal.update_call(call.id, status="done", seq=row.seq, txn=row.txn)

    def has_hook(self, event: HookEvent) -> bool:
        """Whether a hook of the same client told of a call that the host sends to a mounted server. The client's name of
        the tool has more before it."""
        return any(
            call.tool != event.tool
            and call.tool.endswith(event.tool or "")
            and (call.process is None or event.process is None or call.process == event.process)
            for call in self._journal.open_calls()
        )

    def has_open(self, event: HookEvent) -> bool:
        """Of the agent of an event."""
        return any(_is_of_agent(call, event) for call in self._journal.open_calls())


def clean(event: HookEvent) -> HookEvent:
    """An event whose names are text of a bounded length, as the journal can keep it."""

    def shorten(text: str | None) -> str | None:
        return text[:NAME_MAX].encode("utf-8", "replace").decode() if text is not None else None

    return msgspec.structs.replace(
        event,
        client=shorten(event.client),
        session=shorten(event.session),
        agent=shorten(event.agent),
        tool=shorten(event.tool),
        call_id=shorten(event.call_id),
    )


def _is_of_session(call: CallRecord, event: HookEvent) -> bool:
    return (call.client, call.session) == (event.client, event.session)


def _is_of_agent(call: CallRecord, event: HookEvent) -> bool:
    return _is_of_session(call, event) and call.agent == event.agent


def _shorten(command: str) -> str:
    return command if len(command) <= COMMAND_MAX else command[: COMMAND_MAX - 1] + "…"
