"""Threads that run calls: made when needed, bounded, and never waited for at exit longer than asked."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

MAX_THREADS: Final = 32
MAX_PENDING: Final = 256

Job = Callable[[], None]


class Pool:
    """Runs jobs in the order they came, each on a thread of its own while there are any."""

    def __init__(self, threads: int = MAX_THREADS, pending: int = MAX_PENDING) -> None:
        self._limit = threads
        self._capacity = pending
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._unfinished = 0

    def submit(self, job: Job) -> bool:
        """Accept a job, or refuse it where too many are unfinished already."""
        with self._changed:
            if self._unfinished >= self._capacity:
                return False
            self._unfinished += 1
            self._jobs.append(job)
            if self._idle < len(self._jobs) and self._threads < self._limit:
                self._threads += 1
                # Daemons: a call that never ends must not keep a finished worker alive.
                threading.Thread(target=self._run, name=f"call-{self._threads}", daemon=True).start()
            else:
                self._changed.notify()
            return True

    def drain(self, seconds: float) -> bool:
        """Wait until everything accepted has finished; False when the time was over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._unfinished == 0, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._jobs:
                    self._changed.wait()
                self._idle -= 1
                job = self._jobs.popleft()
            try:
                job()
            finally:
                with self._changed:
                    self._unfinished -= 1
                    self._changed.notify_all()
