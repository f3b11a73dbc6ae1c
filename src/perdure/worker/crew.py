"""Threads that take turns at reading: who reads a call runs it itself, and keeps the turn if it is soon done.

    reads ──a call──▶ runs it, answers, reads on
                        │ it says that it will take long, or that it waits and another call is there, or 5 ms are over
                        ▼
                      another thread reads on; this one runs the call, answers, and waits for its next turn

So a call is answered by the thread that read it, and nobody has to be woken in between. Where all are busy,
the one that reads goes on reading, and what it reads is run in the order it came as soon as one is free.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from perdure.protocol import relief
from perdure.worker.alarm import Alarm

MAX_THREADS: Final = 32
MAX_PENDING: Final = 1024

KEPT_S: Final = 0.005
"""How long a call may run before somebody else reads on, where it does not say so itself."""

Job = Callable[[], None]


class _Turn:
    """One thread's turn at reading while it runs what it read; given away once, by that thread or by the alarm."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.is_over = False

    def give(self) -> None:
        self._crew.pass_on(self)

    def is_asked_for(self) -> bool:
        return not self.is_over and self._crew.has_input()


class Crew:
    """`read` blocks until there is a job, and gives None at the end of input; `has_input` says whether it would not.

    Without an `alarm` no turn is kept: nobody would take it from a call that is stuck.
    """

    def __init__(
        self,
        read: Callable[[], Job | None],
        threads: int = MAX_THREADS,
        pending: int = MAX_PENDING,
        *,
        has_input: Callable[[], bool] = lambda: True,
        alarm: Alarm | None = None,
    ) -> None:
        self.has_input = has_input
        self._alarm = alarm
        self._kept: _Turn | None = None
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
        if self._alarm is None:
            self._over.wait()
        else:
            self._watch(self._alarm)
        if self._failure is not None:
            raise self._failure

    def _watch(self, alarm: Alarm) -> None:
        """Take the turn from whoever keeps it for too long."""
        while not self._is_over:
            alarm.wait()
            if (kept := self._kept) is not None:
                kept.give()

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
        # Daemons: a call that never ends must not keep a finished worker alive.
        threading.Thread(target=self._work, name=f"call-{self._threads + 1}", daemon=True).start()
        self._threads += 1
        self._idle += 1

    def _work(self) -> None:
        while self._reads():
            while (job := self._next()) is not None:
                self._run(job)

    def _reads(self) -> bool:
        """One's turn, until it goes to another while a job is run; False at the end of all reading."""
        self._turn.acquire()
        while not self._is_over:
            try:
                job = self._read()
            except BaseException as error:
                self.end(error)
                break
            if job is None:
                self.end()
            elif self._can_run(job):
                turn = self._kept_turn()
                self._run(job)
                if not self._keeps(turn):
                    return True
        self._turn.release()
        return False

    def _run(self, job: Job) -> None:
        try:
            job()
        except BaseException as error:
            # A call without an answer: whoever started us finds out what became of it.
            self.end(error)

    def _can_run(self, job: Job) -> bool:
        """Where nobody could read on, the job waits for one who is free."""
        with self._guard:
            if self._idle == 1 and self._threads == self._limit:
                self._jobs.append(job)
                return False
            return True

    def _kept_turn(self) -> _Turn:
        turn = _Turn(self)
        if self._alarm is None:
            turn.give()
            return turn
        self._kept = turn
        relief.hold(turn)
        self._alarm.set()
        return turn

    def _keeps(self, turn: _Turn) -> bool:
        relief.hold(None)
        with self._guard:
            was_over, turn.is_over = turn.is_over, True
            return not was_over

    def pass_on(self, turn: _Turn) -> None:
        """Somebody else reads on."""
        with self._guard:
            if turn.is_over:
                return
            if self._idle == 1:
                try:
                    self._start()
                except RuntimeError:
                    return  # no thread to be had: reading waits for this call
            turn.is_over = True
            self._idle -= 1
        self._turn.release()

    def end(self, error: BaseException | None = None) -> None:
        self._failure = self._failure or error
        self._is_over = True
        self._over.set()
        if self._alarm is not None:
            self._alarm.ring()

    def _next(self) -> Job | None:
        with self._guard:
            if self._jobs:
                return self._jobs.popleft()
            self._idle += 1
            return None
