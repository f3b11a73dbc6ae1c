"""Calls that wait without a thread: resumed by whoever ends the wait, and after a failure by nobody who is needed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator

import pytest

from perdure.protocol.waiting import ASIDE, Waited, Work, finished
from perdure.worker.course import Course, Errands

SOON = 10.0


class Turn:
    """Something to wait for, which the test ends; `work` is what the first in line has to do for all."""

    def __init__(self, work: Work | None = None, *, has_failed: bool = False) -> None:
        self.has_failed = has_failed
        self.resume: Work | None = None
        self._work = work

    def begin(self, resume: Work) -> Work | None:
        self.resume = resume
        return self._work

    def __await__(self) -> Generator[Waited, None, str]:
        yield self
        if self.has_failed:
            raise ValueError
        return "settled"

    def end(self) -> None:
        assert self.resume is not None
        self.resume()


@pytest.fixture
def errands() -> Errands:
    def failed(error: BaseException) -> None:
        failures.put(error)

    failures: queue.Queue[BaseException] = queue.Queue()
    made = Errands(failed)
    made.failures = failures  # type: ignore[attr-defined]
    return made


def test_a_call_that_waits_gives_its_thread_back_and_goes_on_in_the_one_that_ends_the_wait(
    errands: Errands,
) -> None:
    turn, ran = Turn(), list[tuple[str, int]]()

    async def steps() -> None:
        ran.append(("begun", threading.get_ident()))
        ran.append((await turn, threading.get_ident()))

    assert Course(steps(), errands).advance() is None
    other = threading.Thread(target=turn.end)
    other.start()
    other.join(SOON)

    assert ran == [("begun", threading.get_ident()), ("settled", other.ident)]


def test_what_has_to_be_done_for_all_who_wait_is_given_to_the_caller(errands: Errands) -> None:
    done: list[str] = []
    turn = Turn(work=lambda: (done.append("for all"), turn.end())[1])

    async def steps() -> None:
        done.append(await turn)

    work = Course(steps(), errands).advance()
    assert work is not None
    assert done == []
    work()
    assert done == ["for all", "settled"]


def test_after_a_failure_a_call_goes_on_in_a_thread_that_nobody_waits_for(errands: Errands) -> None:
    turn, told = Turn(has_failed=True), queue.Queue[int]()

    async def steps() -> None:
        try:
            await turn
        except ValueError:
            told.put(threading.get_ident())

    Course(steps(), errands).advance()
    turn.end()
    assert told.get(timeout=SOON) != threading.get_ident()


def test_what_is_not_brief_is_left_to_be_done_aside(errands: Errands) -> None:
    done: list[str] = []

    async def steps() -> None:
        done.append("brief")
        await ASIDE
        done.append("long")

    rest = Course(steps(), errands).advance()
    assert done == ["brief"]
    assert rest is not None
    rest()
    assert done == ["brief", "long"]


def test_a_call_that_breaks_after_its_wait_is_told_of_and_does_not_break_who_ended_the_wait(
    errands: Errands,
) -> None:
    turn = Turn()

    async def steps() -> None:
        await turn
        raise KeyboardInterrupt

    Course(steps(), errands).advance()
    turn.end()
    assert isinstance(errands.failures.get(timeout=SOON), KeyboardInterrupt)  # type: ignore[attr-defined]


def test_more_errands_than_threads_are_all_run() -> None:
    errands, gate, ran = Errands(lambda error: None, threads=2), threading.Event(), queue.Queue[int]()

    def errand(number: int) -> None:
        gate.wait(SOON)
        ran.put(number)

    for number in range(20):
        errands.add(lambda number=number: errand(number))  # type: ignore[misc]
    assert ran.empty()
    gate.set()
    assert sorted(ran.get(timeout=SOON) for _ in range(20)) == list(range(20))


def test_the_same_steps_can_be_waited_for_in_one_thread() -> None:
    turn = Turn()
    ender = threading.Timer(0.01, turn.end)

    async def steps() -> str:
        await ASIDE
        ender.start()
        return await turn

    assert finished(steps()) == "settled"


def test_steps_that_raise_raise_where_they_are_waited_for() -> None:
    turn = Turn(has_failed=True)
    turn._work = turn.end

    async def steps() -> str:
        return await turn

    with pytest.raises(ValueError):
        finished(steps())
