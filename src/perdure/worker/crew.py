"""Threads that take turns at reading: who reads a call hands the turn on and runs the call itself.

    reads ──a call──▶ another thread reads on; this one runs the call, answers, and waits for its next turn

So a call is answered by the thread that read it, and nobody has to be woken in between. Where all are busy,
the one that reads goes on reading, and what it reads is run in the order it came as soon as one is free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_THREADS: Final = 32
MAX_PENDING: Final = 1024

Job = Callable[[], None]


class Crew:
    """`read` blocks until there is a job, and gives None at the end of input."""

    def __init__(
        self, read: Callable[[], Job | None], threads: int = MAX_THREADS, pending: int = MAX_PENDING
    ) -> None:
        self._read = read
        self._limit = threads
        self._capacity = pending
        self._turn = threading.Lock()
        self._guard = threading.Lock()
        self._finished = threading.Condition(self._guard)
        self._jobs: deque[Job] = deque()
        self._threads = 0
        self._idle = 0  # of those, how many wait for a turn or have it
        self._unfinished = 0
        self._is_over = False
        self._is_draining = False
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def serve(self) -> None:
        """Until the end of input, or an error nobody foresaw. The caller's thread only waits: no call can keep it."""
        with self._guard:
            self._start()
        self._over.wait()
        if self._failure is not None:
            raise self._failure

    def admits(self) -> bool:
        """Whether another job may be given out by `read`: then it must be."""
        with self._guard:
            if self._unfinished >= self._capacity:
                return False
            self._unfinished += 1
            return True

    def leaves(self) -> None:
        """One of those admitted is done with; it may have gone on elsewhere after its job."""
        with self._guard:
            self._unfinished -= 1
            if self._is_draining:
                self._finished.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until everything admitted is done with; False when the time was over first."""
        with self._finished:
            self._is_draining = True
            return self._finished.wait_for(lambda: self._unfinished == 0, seconds)

    def _start(self) -> None:
        self._threads += 1
        self._idle += 1
        # Daemons: a call that never ends must not keep a finished worker alive.
        threading.Thread(target=self._work, name=f"call-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while (job := self._turned()) is not None:
            while job is not None:
                try:
                    job()
                except (
                    BaseException
                ) as error:  # a call without an answer: whoever started us finds out what became of it
                    self.end(error)
                job = self._next()

    def _turned(self) -> Job | None:
        """One's turn at reading, up to the first job that can be run while somebody else reads on."""
        with self._turn:
            while not self._is_over:
                try:
                    job = self._read()
                except BaseException as error:
                    self.end(error)
                    break
                if job is None:
                    self.end()
                elif self._goes_to_work(job):
                    return job
        return None

    def end(self, error: BaseException | None = None) -> None:
        self._failure = self._failure or error
        self._is_over = True
        self._over.set()

    def _goes_to_work(self, job: Job) -> bool:
        with self._guard:
            if self._idle == 1:
                if self._threads == self._limit:
                    self._jobs.append(job)
                    return False
                self._start()
            self._idle -= 1
            return True

    def _next(self) -> Job | None:
        with self._guard:
            if self._jobs:
                return self._jobs.popleft()
            self._idle += 1
            return None
