"""Threads that take turns at reading: nothing is lost, nothing waits behind a slow call, and the end is seen."""

from __future__ import annotations

import queue
import threading

from perdure.worker.crew import Crew, Job

SOON = 10.0


class Source:
    """Jobs as they are fed; None ends the input."""

    def __init__(self, threads: int = 32, pending: int = 256) -> None:
        self.fed: queue.Queue[Job | Exception | None] = queue.Queue()
        self.readers: set[int] = set()
        self.crew = Crew(self._read, threads, pending)
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
