"""Threads that take turns at reading: nothing is lost, nothing waits behind a slow call, and the end is seen."""

from __future__ import annotations

import queue
import threading

import pytest

from perdure.protocol import relief
from perdure.worker.alarm import Alarm
from perdure.worker.crew import Crew, Job

SOON = 10.0


class Source:
    """Jobs as they are fed; None ends the input."""

    def __init__(self, threads: int = 32, pending: int = 256, alarm: Alarm | None = None) -> None:
        self.fed: queue.Queue[Job | Exception | None] = queue.Queue()
        self.readers: set[int] = set()
        self.crew = Crew(self._read, threads, pending, has_input=lambda: not self.fed.empty(), alarm=alarm)
        self.failure: list[BaseException] = []
        self.server = threading.Thread(target=self._serve, daemon=True)
        self.server.start()

    def _read(self) -> Job | None:
        self.readers.add(threading.get_ident())
        given = self.fed.get()
        if isinstance(given, Exception):
            raise given
        if given is None:
            return None
        assert self.crew.admits()

        def job() -> None:
            given()
            self.crew.leaves()

        return job

    def _serve(self) -> None:
        try:
            self.crew.serve()
        except RuntimeError as error:
            self.failure.append(error)

    def end(self) -> None:
        self.fed.put(None)
        self.server.join(SOON)
        assert not self.server.is_alive()


def test_who_reads_a_job_runs_it() -> None:
    source = Source()
    ran: queue.Queue[int] = queue.Queue()
    for _ in range(20):
        source.fed.put(lambda: ran.put(threading.get_ident()))
        assert ran.get(timeout=SOON) in source.readers
    source.end()
    assert source.crew.drain(SOON)


def test_reading_goes_on_while_every_thread_is_busy_and_order_is_kept() -> None:
    source = Source(threads=3)
    release = threading.Event()
    started: queue.Queue[int] = queue.Queue()

    def blocked(number: int) -> Job:
        def job() -> None:
            started.put(number)
            release.wait(SOON)

        return job

    # Two run, the third thread reads on: what it reads waits.
    for number in range(8):
        source.fed.put(blocked(number))
    assert {started.get(timeout=SOON), started.get(timeout=SOON)} == {0, 1}
    while not source.fed.empty():
        pass
    assert started.empty()
    release.set()
    assert [started.get(timeout=SOON) for _ in range(6)] == sorted(range(2, 8))
    source.end()
    assert source.crew.drain(SOON)


def test_a_job_that_raises_ends_the_service_so_that_its_caller_is_not_left_waiting() -> None:
    source = Source()

    def broken() -> None:
        raise RuntimeError("no answer")

    source.fed.put(broken)
    source.server.join(SOON)
    assert [str(error) for error in source.failure] == ["no answer"]


def test_no_more_is_admitted_than_there_is_room_for() -> None:
    crew = Crew(lambda: None, pending=2)
    assert [crew.admits() for _ in range(3)] == [True, True, False]


def test_draining_ends_with_the_time_where_a_job_never_does() -> None:
    source = Source()
    release = threading.Event()
    source.fed.put(lambda: release.wait(SOON) and None)
    source.end()
    assert not source.crew.drain(0.05)
    release.set()
    assert source.crew.drain(SOON)


def test_a_broken_reader_ends_the_service_and_is_seen() -> None:
    source = Source()
    source.fed.put(RuntimeError("broken"))
    source.server.join(SOON)
    assert [str(error) for error in source.failure] == ["broken"]


class Kept(Source):
    """With an alarm, so that a turn is kept."""

    def __init__(self, threads: int = 32, after_s: float = 60.0) -> None:
        alarm = Alarm.made(after_s)
        if alarm is None:
            pytest.skip("this system has no timer that a thread can wait for")
        self._alarm = alarm
        super().__init__(threads, pending=4096, alarm=alarm)

    def end(self) -> None:
        super().end()
        self._alarm.close()


def test_who_is_soon_done_reads_on_and_nobody_is_woken() -> None:
    source = Kept()
    ran: queue.Queue[int] = queue.Queue()
    for _ in range(20):
        source.fed.put(lambda: ran.put(threading.get_ident()))
        ran.get(timeout=SOON)
    source.end()
    assert len(source.readers) == 1
    assert source.crew.drain(SOON)


def stuck(source: Kept, *before: Job) -> None:
    """One job never ends by itself, and the one after it is run all the same."""
    release, other = threading.Event(), threading.Event()

    def first() -> None:
        for job in before:
            job()
        release.wait(SOON)

    source.fed.put(first)
    source.fed.put(other.set)
    assert other.wait(SOON)
    release.set()
    assert source.crew.drain(SOON)
    source.end()
    assert len(source.readers) == 2


def test_a_turn_is_taken_from_a_call_that_is_stuck() -> None:
    stuck(Kept(after_s=0.01))


def test_a_call_that_will_take_long_passes_its_turn_on() -> None:
    stuck(Kept(), relief.now, relief.now)


def test_a_call_that_waits_passes_it_on_where_another_is_there() -> None:
    stuck(Kept(), relief.if_asked)


def test_a_call_that_waits_keeps_its_turn_where_nobody_asks() -> None:
    source = Kept()
    asked: queue.Queue[None] = queue.Queue()

    def waits() -> None:
        relief.if_asked()
        asked.put(None)

    for _ in range(5):
        source.fed.put(waits)
        asked.get(timeout=SOON)
    source.end()
    assert len(source.readers) == 1


def test_a_turn_passes_on_at_any_moment_without_a_job_lost() -> None:
    """The alarm rings all the time, and jobs pass their turns on themselves."""
    source = Kept(threads=4, after_s=0.00001)
    ran: queue.Queue[int] = queue.Queue()

    def numbered(number: int) -> Job:
        def job() -> None:
            (relief.now, relief.if_asked, lambda: None)[number % 3]()
            ran.put(number)

        return job

    for number in range(3000):
        source.fed.put(numbered(number))
    assert sorted(ran.get(timeout=SOON) for _ in range(3000)) == list(range(3000))
    assert source.crew.drain(SOON)
    source.end()
