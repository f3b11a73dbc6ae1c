"""The list of recent events: what is in it, in words, and that it stays bounded."""

from __future__ import annotations

import pytest

from perdure.host.recent_events import Event, RecentEvents, describe_call
from perdure.protocol.faults import Fault


def sentences(events: RecentEvents) -> list[tuple[str, int]]:
    return [(event.sentence, event.count) for event in events.newest()]


def test_a_fault_that_repeats_is_one_event_with_a_count() -> None:
    events = RecentEvents()
    for _ in range(3):
        events.add_fault("notes", Fault("process", "killed", 1, "ended by SIGKILL"))
        events.add_restart("notes")
    assert sentences(events) == [("notes was started again", 3), ("notes was killed (SIGKILL)", 3)]


def test_an_event_that_repeats_after_a_while_is_listed_again() -> None:
    events = RecentEvents()
    for at in (0.0, 1.0, 1000.0):
        events.add(Event(at, "fault", "notes", "ended"))
    assert [(event.at, event.count) for event in events.newest()] == [(1000.0, 1), (1.0, 2)]


def test_the_list_is_bounded_and_keeps_the_newest() -> None:
    events = RecentEvents(most=10)
    for number in range(100):
        events.add(Event(float(number), "failure", f"tool {number}", "failed"))
    kept = [event.subject for event in events.newest()]
    assert kept == [f"tool {number}" for number in range(99, 89, -1)]


@pytest.mark.parametrize(
    ("ending", "code", "kind", "text"),
    [
        ("tool_error", "blocked/risk", "refusal", "was refused: it looks like a secret"),
        (
            "tool_error",
            "stale_precondition/changed_since_seen",
            "conflict",
            "met a conflict: changed since seen",
        ),
        ("tool_error", "not_found/file_not_found", "failure", "failed: file not found"),
        ("tool_error", "", "failure", "failed"),
        ("recovery_error", "killed", "lost", "was lost with its server (killed)"),
        ("host_error", "circuit_open", "failure", "was not sent: circuit open"),
    ],
)
def test_a_failed_call_is_told_in_words(ending: str, code: str, kind: str, text: str) -> None:
    assert describe_call(ending, code) == (kind, text)


def test_notes_that_are_not_for_people_are_left_out() -> None:
    events = RecentEvents()
    events.add_note("dispatch", {"mount": "notes", "call": 1}, "client", "session")
    events.add_note("lifecycle", {"mount": "notes", "phase": "spawn"}, "client", "session")
    events.add_note("fault", {"mount": "notes", "code": "killed", "class": "process"}, "client", "session")
    assert sentences(events) == []
    events.add_note("circuit", {"mount": "notes", "state": "open", "for_s": 4.0}, "client", "session")
    assert sentences(events) == [("notes is paused: it failed several times in a row", 1)]
