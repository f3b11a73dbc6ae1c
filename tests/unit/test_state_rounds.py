"""Jobs of shared state in their rounds: by threads that wait, and by calls that wait without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.memory import MemoryState
from perdure.storage.state import Author, Decide, Name, StateError, Wanted
from perdure.storage.state_rounds import Job, Payload, Rounds, Step

SOON = 10.0


class Counted(MemoryState):
    """A store that tells how large its rounds were, and can be held in one."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.is_in_round = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def round(self, wanted: Wanted, decide: Decide) -> None:
        self.sizes.append(len(wanted.answers))
        self.is_in_round.set()
        assert self.goes_on.wait(SOON)
        super().round(wanted, decide)


def name(key: str) -> Name:
    return ("key", "default", key)


def new_job(rounds: Rounds, key: str, decide: Callable[[Step], Payload] | None = None) -> Job:
    def put(step: Step) -> Payload:
        return {"version": step.put(name(key), "1").version}

    return Job(rounds, frozenset({name(key)}), decide or put, Author("c", "s", "t"), key=key)


class Awaited:
    """A job that holds no thread: what it came to, and in whose thread it went on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.thread = 0
        self.went_on = threading.Event()
        self.work = job.begin(self._resume)

    def _resume(self) -> None:
        self.thread = threading.get_ident()
        self.went_on.set()

    def result(self) -> Any:
        assert self.went_on.wait(SOON)
        return self.job.result()


def test_who_leads_works_for_all_who_wait_and_they_go_on_in_its_thread() -> None:
    store = Counted()
    rounds = Rounds(store)

    first, second, third = (Awaited(new_job(rounds, key)) for key in "abc")
    assert first.work is not None
    assert second.work is third.work is None  # somebody leads already
    first.work()

    assert [one.result() for one in (first, second, third)] == [{"version": 1}] * 3
    assert {one.thread for one in (first, second, third)} == {threading.get_ident()}
    assert store.sizes == [3]


def test_one_refused_takes_nothing_from_the_others_of_its_round() -> None:
    def no(step: Step) -> Payload:
        step.put(name("b"), "1")
        raise refuse("blocked", "no", "no", next_step=call_again())

    rounds = Rounds(MemoryState())
    first, second = Awaited(new_job(rounds, "a")), Awaited(new_job(rounds, "b", no))
    assert first.work is not None
    first.work()

    assert first.result() == {"version": 1}
    assert second.job.has_failed
    with pytest.raises(ToolError, match="blocked"):
        second.result()
    assert rounds.submit(new_job(rounds, "c", lambda step: {"there": step.live(name("b"))})) == {
        "there": None
    }


def test_a_thread_whose_own_job_is_done_leaves_those_without_one_to_somebody() -> None:
    store = Counted()
    store.goes_on.clear()
    rounds = Rounds(store)
    done: list[Payload] = []
    leader = threading.Thread(target=lambda: done.append(rounds.submit(new_job(rounds, "a"))))
    leader.start()
    assert store.is_in_round.wait(SOON)

    late = [Awaited(new_job(rounds, key)) for key in "bc"]
    store.goes_on.set()
    leader.join(SOON)

    assert done == [{"version": 1}]
    assert [one.result() for one in late] == [{"version": 1}] * 2
    assert late[0].thread != leader.ident
    assert rounds.submit(new_job(rounds, "d")) == {"version": 1}  # nobody is thought to lead any more


def test_a_thread_that_waits_leads_where_the_leader_is_done() -> None:
    store = Counted()
    store.goes_on.clear()
    rounds = Rounds(store)
    results: dict[str, Payload] = {}

    def submitted(key: str) -> threading.Thread:
        made = threading.Thread(target=lambda: results.update({key: rounds.submit(new_job(rounds, key))}))
        made.start()
        return made

    leader = submitted("a")
    assert store.is_in_round.wait(SOON)
    others = [submitted(key) for key in "bcd"]
    without = Awaited(new_job(rounds, "e"))
    store.goes_on.set()

    for one in (leader, *others):
        one.join(SOON)
    assert results == {key: {"version": 1} for key in "abcd"}
    assert without.result() == {"version": 1}


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_job_to_which_no_round_has_come_in_time_is_refused_untried(is_awaited: bool) -> None:
    store = Counted()
    store.goes_on.clear()
    rounds = Rounds(store, patience_s=0.05)
    leading = Awaited(new_job(rounds, "a"))
    assert leading.work is not None
    leader = threading.Thread(target=leading.work)
    leader.start()
    assert store.is_in_round.wait(SOON)

    tried: list[str] = []
    late = new_job(rounds, "b", lambda step: tried.append("b") or {})  # type: ignore[func-returns-value]
    if is_awaited:
        waiting = Awaited(late)
        while late.until > time.monotonic():
            threading.Event().wait(0.01)
        store.goes_on.set()
        with pytest.raises(StateError) as refused:
            waiting.result()
    else:
        with pytest.raises(StateError) as refused:
            rounds.submit(late)
        store.goes_on.set()

    assert leading.result() == {"version": 1}
    leader.join(SOON)
    assert refused.value.envelope.context["fault"]["code"] == "state_busy"
    assert tried == []


def test_a_store_that_fails_is_told_to_everybody_in_the_round() -> None:
    class Broken(MemoryState):
        def round(self, wanted: Wanted, decide: Decide) -> None:
            raise OSError("broken")

    rounds = Rounds(Broken())
    both = [Awaited(new_job(rounds, key)) for key in "ab"]
    assert both[0].work is not None
    both[0].work()

    for one in both:
        with pytest.raises(OSError, match="broken"):
            one.result()
