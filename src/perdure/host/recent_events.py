"""The newest events that a person asks about: faults, restarts, refused calls, conflicts, what an operator did.

A bounded list in memory; the event log on disk has every note. An event that repeats is counted, not listed again, so
that a server which fails in a loop does not push everything else out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from perdure.protocol.faults import Fault

MOST_EVENTS: Final = 500
REPEAT_S: Final = 300.0
MOST_COMPARED: Final = 32
MOST_TEXT: Final = 200

Kind = Literal["fault", "restart", "pause", "refusal", "conflict", "failure", "lost", "operator", "undo"]
Fields = Mapping[str, str | int | float | bool]

_REFUSALS: Final = frozenset({"blocked", "policy_violation", "quota_exceeded"})
_CONFLICTS: Final = frozenset({"conflict", "stale_precondition", "lost"})
# The process itself is watched for these: one event for one process, however many sessions used it.
_SEEN_BY_PROCESS: Final = frozenset({"killed", "exited", "spawn_failed"})
_REASONS: Final = {"risk": "it looks like a secret"}
_NOTES: Final = frozenset({"call", "circuit", "fault", "tools_changed", "lifecycle"})
_BY_REQUEST: Final = frozenset({"restarted", "disabled"})


class Event(msgspec.Struct, frozen=True):
    """`subject` (a server or a tool) and `text` read as one sentence. `at` is in seconds since 1970."""

    at: float
    kind: Kind
    subject: str
    text: str
    client: str = ""
    session: str = ""
    count: int = 1

    @property
    def sentence(self) -> str:
        return f"{self.subject} {self.text}"


class RecentEvents:
    def __init__(self, most: int = MOST_EVENTS) -> None:
        self._events: deque[Event] = deque(maxlen=most)

    def newest(self) -> Iterator[Event]:
        """Newest first."""
        return reversed(self._events)

    def add(self, event: Event) -> None:
        """An event that equals a recent one in all but its time takes its place, and counts it."""
        event = msgspec.structs.replace(event, text=event.text[:MOST_TEXT])
        for number, known in enumerate(self.newest()):
            if number >= MOST_COMPARED or event.at - known.at > REPEAT_S:
                break
            if _same(known, event):
                self._events.remove(known)
                event = msgspec.structs.replace(event, count=known.count + event.count)
                break
        self._events.append(event)

    def add_fault(self, mount: str, fault: Fault) -> None:
        """A process that ended or could not be started."""
        self.add(Event(time.time(), "fault", mount, describe(fault)))

    def add_restart(self, mount: str) -> None:
        self.add(Event(time.time(), "restart", mount, "was started again"))

    def add_operation(self, mount: str, action: str, client: str) -> None:
        self.add(Event(time.time(), "operator", mount, f"was {action}", client))

    def add_note(self, event: str, fields: Fields, client: str, session: str) -> None:
        """What a kernel noted, if it is for people. Most notes are not."""
        if event in _NOTES and (found := _from_note(event, fields, client, session)) is not None:
            self.add(found)


def describe(fault: Fault) -> str:
    """What a server did, to be read after its name."""
    match fault.code:
        case "killed":
            return f"was killed ({fault.detail.removeprefix('ended by ')})" if fault.detail else "was killed"
        case "exited":
            return f"ended with {fault.detail}"
        case "spawn_failed":
            return f"did not start: {fault.detail}"
        case "unresponsive":
            return "stopped answering"
        case "startup_timeout":
            return "did not get ready in time"
        case _:
            return f"failed: {fault.detail or fault.code.replace('_', ' ')}"


def _from_note(event: str, fields: Fields, client: str, session: str) -> Event | None:
    now, mount = time.time(), str(fields.get("mount", ""))
    match event:
        case "call":
            kind, text = describe_call(str(fields["ending"]), str(fields["code"]))
            return Event(now, kind, str(fields["tool"]), text, client, session)
        case "circuit" if fields["state"] == "open":
            return Event(now, "pause", mount, "is paused: it failed several times in a row")
        case "fault" if "source" in fields:
            return Event(now, "fault", f"The {fields['source']}", f"has a fault: {fields['detail']}")
        case "fault" if fields["code"] not in _SEEN_BY_PROCESS and fields["code"] != "deadline":
            fault = Fault("process", str(fields["code"]), 0)
            return Event(now, "fault", mount, describe(fault))
        case "tools_changed":
            return Event(now, "fault", mount, f"changed its tools: {fields['tools']}")
        case "lifecycle" if fields["phase"] in _BY_REQUEST:
            return Event(now, "operator", mount, f"was {fields['phase']}", client, session)
        case _:
            return None


def describe_call(ending: str, code: str) -> tuple[Kind, str]:
    """How a tool call failed, to be read after its name."""
    error, _, reason = code.partition("/")
    words = _REASONS.get(reason, (reason or error).replace("_", " "))
    match ending:
        case "tool_error" if error in _REFUSALS:
            return "refusal", f"was refused: {words}"
        case "tool_error" if error in _CONFLICTS:
            return "conflict", f"met a conflict: {words}"
        case "tool_error":
            return "failure", f"failed: {words}" if words else "failed"
        case "response_error":
            return "failure", "failed: its server answered with an error"
        case "recovery_error":
            return "lost", f"was lost with its server ({words})" if words else "was lost with its server"
        case _:
            return "failure", f"was not sent: {words}" if words else "was not sent"


def _same(known: Event, event: Event) -> bool:
    return (known.kind, known.subject, known.text, known.client, known.session) == (
        *(event.kind, event.subject, event.text, event.client, event.session),
    )
