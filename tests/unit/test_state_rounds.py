"""Rounds of shared state: jobs decided together, each with its own outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.errors import StateError
from perdure.storage.memory import MemoryState
from perdure.storage.state import Author, Decide, Name, Wanted
from perdure.storage.state_rounds import Job, Payload, Rounds, Step

SOON = 10.0


class HeldStore(MemoryState):
    """A store that records the sizes of its rounds, and can be held in one."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.is_in_round = threading.Event()
        self.goes_on = threading.Event()

    def round(self, wanted: Wanted, decide: Decide) -> None:
        self.sizes.append(len(wanted.answers))
        self.is_in_round.set()
        assert self.goes_on.wait(SOON)
        super().round(wanted, decide)


def name(key: str) -> Name:
    return ("key", "default", key)


def new_job(key: str, decide: Callable[[Step], Payload] | None = None) -> Job:
    def put(step: Step) -> Payload:
        return {"version": step.put(name(key), "1").version}

    return Job(frozenset({name(key)}), decide or put, Author("c", "s", "t"), key=key)


@pytest.fixture
def store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def rounds(store: HeldStore) -> Iterator[Rounds]:
    made = Rounds(store, patience_s=0.5)
    yield made
    made.close()


def hold_round(store: HeldStore, rounds: Rounds) -> Future[Payload]:
    first = rounds.submit(new_job("first"))
    assert store.is_in_round.wait(SOON)
    return first


def test_jobs_that_wait_share_a_round(store: HeldStore, rounds: Rounds) -> None:
    first = hold_round(store, rounds)
    others = [rounds.submit(new_job(key)) for key in "abc"]
    store.goes_on.set()
    assert [future.result(SOON) for future in (first, *others)] == [{"version": 1}] * 4
    assert store.sizes == [1, 3]


def test_a_refused_job_takes_nothing_from_the_others_of_its_round(store: HeldStore, rounds: Rounds) -> None:
    def no(step: Step) -> Payload:
        step.put(name("b"), "1")
        raise refuse("blocked", "no", "no", next_step=call_again())

    hold_round(store, rounds)
    good, refused = rounds.submit(new_job("a")), rounds.submit(new_job("b", no))
    store.goes_on.set()
    assert good.result(SOON) == {"version": 1}
    with pytest.raises(ToolError, match="blocked"):
        refused.result(SOON)
    look = rounds.submit(new_job("c", lambda step: {"there": step.live(name("b"))}))
    assert look.result(SOON) == {"there": None}


def test_a_job_to_which_no_round_comes_in_time_is_refused_untried(store: HeldStore) -> None:
    rounds = Rounds(store, patience_s=0.05)
    first = hold_round(store, rounds)
    tried: list[str] = []
    late = new_job("b", lambda step: tried.append("b") or {})  # type: ignore[func-returns-value]
    refused = rounds.submit(late)
    while late.deadline > time.monotonic():
        threading.Event().wait(0.01)
    store.goes_on.set()
    with pytest.raises(StateError) as error:
        refused.result(SOON)
    assert error.value.code == "state_busy"
    assert first.result(SOON) == {"version": 1}
    assert tried == []
    rounds.close()


def test_a_store_that_fails_fails_every_job_of_the_round() -> None:
    class Broken(HeldStore):
        def round(self, wanted: Wanted, decide: Decide) -> None:
            super().round(wanted, decide)
            raise OSError("broken")

    store = Broken()
    rounds = Rounds(store)
    futures = [hold_round(store, rounds), *(rounds.submit(new_job(key)) for key in "ab")]
    store.goes_on.set()
    for future in futures:
        with pytest.raises(OSError, match="broken"):
            future.result(SOON)
    rounds.close()
