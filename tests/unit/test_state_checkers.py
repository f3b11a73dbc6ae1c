"""The checkers of the state trials notice what they are there to notice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.state import linear, serial, trials
from harness.state.events import FOREVER, Event, Outcome, Recorder
from harness.state.subjects import InProcess
from perdure.storage.memory import MemoryState
from perdure.storage.state import Decide, Found, Name, Wanted
from perdure.surfaces.state import keys
from perdure.surfaces.state.service import StateService

KEY = "r0"


def event(
    identity: str,
    tool: str,
    began: int,
    ended: int,
    answer: dict[str, Any],
    outcome: Outcome = "done",
    **given: Any,
) -> Event:
    return Event(identity, tool, {"key": KEY, **given}, began, ended, outcome, answer)


def wrote(identity: str, began: int, ended: int, version: int, expected: int = -1) -> Event:
    answer = {"status": "ok", "version": version, "revision": version}
    return event(identity, "set_state", began, ended, answer, expected_version=expected)


def read(identity: str, began: int, ended: int, version: int) -> Event:
    answer = {"status": "ok", "version": version, "revision": version}
    return event(identity, "get_state", began, ended, answer)


def lost(identity: str, began: int, expected: int = -1) -> Event:
    return event(identity, "set_state", began, FOREVER, {}, "unknown", expected_version=expected)


def row(revision: int, version: int, by: str | None, key: str = KEY) -> serial.Row:
    return serial.row(revision, key, version, json.dumps({"by": by}) if by is not None else None)


GOOD = [wrote("a", 0, 10, 1, 0), wrote("b", 5, 20, 2), read("c", 6, 9, 1), read("d", 21, 22, 2)]
LOG = [row(1, 1, "a"), row(2, 2, "b")]


def test_a_right_history_is_right() -> None:
    assert linear.is_linearizable(GOOD)
    assert serial.anomalies(GOOD, LOG) == []


def test_a_lost_call_may_have_happened_or_not() -> None:
    happened = [wrote("a", 0, 10, 1), lost("x", 11), read("c", 20, 21, 2)]
    did_not = [wrote("a", 0, 10, 1), lost("x", 11), read("c", 20, 21, 1)]
    did_not.append(event("u", "get_state", 22, FOREVER, {}, "unknown"))

    assert linear.is_linearizable(happened)
    assert linear.is_linearizable(did_not)
    assert serial.anomalies(happened, [row(1, 1, "a"), row(2, 2, "x")]) == []
    assert serial.anomalies(did_not, [row(1, 1, "a")]) == []


LOST_UPDATE = [wrote("a", 0, 10, 1), wrote("b", 11, 20, 2, 1), wrote("c", 12, 21, 2, 1)]
STALE_READ = [wrote("a", 0, 10, 1), wrote("b", 11, 20, 2), read("c", 21, 22, 1)]
EARLY_READ = [wrote("a", 0, 10, 1), read("c", 11, 12, 2), wrote("b", 13, 20, 2)]
OUT_OF_ORDER = [wrote("b", 0, 10, 2), wrote("a", 11, 20, 1)]
RECREATED = [
    wrote("a", 0, 1, 1),
    event("d", "delete_state", 2, 3, {"status": "ok", "deleted": True, "version": 2, "revision": 2}),
    wrote("b", 4, 5, 1, 0),
]
GHOST = [wrote("a", 0, 1, 1), event("g", "get_state", 2, 3, {"status": "not_found", "revision": 1})]


@pytest.mark.parametrize("history", [LOST_UPDATE, STALE_READ, EARLY_READ, OUT_OF_ORDER, RECREATED, GHOST])
def test_a_wrong_history_of_a_key_is_noticed(history: list[Event]) -> None:
    assert not linear.is_linearizable(history)
    assert linear.anomalies(history) == [f"key {KEY} is not linearizable"]


@pytest.mark.parametrize(
    ("history", "log"),
    [
        (GOOD, LOG[:1]),  # acknowledged, and not there
        (GOOD, [*LOG, row(3, 3, "a")]),  # doubled
        (GOOD, [row(1, 1, "a"), row(2, 3, "b")]),  # a version left out
        ([*GOOD, event("r", "set_state", 0, 1, {}, "refused")], [*LOG, row(3, 3, "r")]),  # refused, yet done
        (LOST_UPDATE, [row(1, 1, "a"), row(2, 2, "b"), row(3, 3, "c")]),
        (STALE_READ, LOG),
        (EARLY_READ, LOG),
        (OUT_OF_ORDER, LOG),
        (GHOST, LOG[:1]),
    ],
)
def test_a_wrong_order_of_changes_is_noticed(history: list[Event], log: list[serial.Row]) -> None:
    assert serial.anomalies(history, log) != []


def test_a_transaction_whose_guard_did_not_hold_is_noticed() -> None:
    guard = {"compare": [{"key": KEY, "version": 1}], "then": []}
    answer = {"status": "ok", "succeeded": True, "revision": 3}
    done = Event("t", "state_txn", guard, 30, 31, "done", answer)
    log = [*LOG, row(3, 1, "t", "t0"), row(3, 1, "t", "t1")]

    assert serial.anomalies([*GOOD, done], log) == ["t: expected r0 at version 1, it was at 2"]


# --- bugs planted in a running store ------------------------------------------------------------------------------


class Forgetful(MemoryState):
    """Acknowledges every tenth round without writing it."""

    rounds = 0

    def round(self, wanted: Wanted, decide: Decide) -> None:
        self.rounds += 1
        super().round(wanted, (lambda loaded: (decide(loaded), None)[1]) if self.rounds % 10 == 0 else decide)


class Stale(MemoryState):
    """Answers some reads with what it read before."""

    def __init__(self) -> None:
        super().__init__()
        self._old: dict[Name, Found] = {}

    def find(self, name: Name) -> Found:
        found = super().find(name)
        return self._old.setdefault(name, found) if found.revision % 3 == 0 else found


def judged(backend: MemoryState) -> list[str]:
    service = StateService(backend)
    recorder = Recorder()
    trials.recorded([InProcess(service) for _ in range(3)], recorder, 0.4, 1)
    return trials.judged(recorder.events, lambda: backend).wrong


def test_a_store_without_bugs_is_found_right() -> None:
    assert judged(MemoryState()) == []


@pytest.mark.parametrize("broken", [Forgetful, Stale])
def test_a_store_that_forgets_or_reads_late_is_noticed(broken: type[MemoryState]) -> None:
    assert judged(broken()) != []


def test_a_store_that_does_not_compare_versions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "mismatch", lambda step, name, expected: None)

    assert judged(MemoryState()) != []
