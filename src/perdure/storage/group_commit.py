"""Group commit: one thread per store runs a round for all jobs that wait, so that they share a lock and an fsync.

    submit(job) ──▶ queue ──▶ commit thread: run_round(batch) ──▶ completes the future of each job

`submit` does not block. A caller that needs the result waits for the future; a caller that only answers adds a callback,
which runs on the commit thread and must be brief.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Generic, Literal, TypeVar

MAX_BATCH: Final = 64


class Job:
    """One caller's part of a round. The round leaves a `result` or an `error` in it, or sets `status`:
    "retry" puts the job into the next round, and "parked" leaves it out until it is submitted again."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.status: Literal["done", "retry", "parked"] = "done"
        self.result: Any = None
        self.error: BaseException | None = None

    def complete(self) -> None:
        """Call once. Drops the future and the error: future → error → traceback → frame → job would be a cycle."""
        future, error = self.future, self.error
        del self.future
        self.error = None
        if error is None:
            future.set_result(self.result)
        else:
            future.set_exception(error)


J = TypeVar("J", bound=Job)


class GroupCommit(Generic[J]):
    """`select` takes a batch from the queue and leaves the rest there; by default the oldest `MAX_BATCH` jobs.
    `closed_error` is what a job gets that comes after `close`."""

    def __init__(
        self,
        name: str,
        run_round: Callable[[list[J]], None],
        closed_error: Callable[[], BaseException],
        select: Callable[[deque[J]], list[J]] | None = None,
    ) -> None:
        self._name = name
        self._run_round = run_round
        self._closed_error = closed_error
        self._select = select or _oldest
        self._queue: SimpleQueue[J | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._idle_since: float | None = time.monotonic()

    def submit(self, job: J) -> Future[Any]:
        future = job.future
        with self._guard:
            if not self._is_closed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._thread.start()
                self._queue.put(job)
                return future
        job.error = self._closed_error()
        job.complete()
        return future

    def idle_s(self) -> float:
        """For how long no job has waited or run."""
        since = self._idle_since
        return time.monotonic() - since if since is not None else 0.0

    def close(self) -> None:
        """Run what was submitted, then end the thread."""
        with self._guard:
            was_closed, self._is_closed = self._is_closed, True
        if self._thread is not None:
            if not was_closed:
                self._queue.put(None)
            if self._thread is not threading.current_thread():  # a callback of the last job may close it
                self._thread.join()

    def _run(self) -> None:
        waiting: deque[J] = deque()
        is_closing = False
        while waiting or not is_closing:
            if not waiting:
                self._idle_since = time.monotonic()
                first = self._queue.get()
                self._idle_since = None
                if first is None:
                    return
                waiting.append(first)
                del first
            for _ in range(self._queue.qsize()):  # exact: no other thread takes from it
                job = self._queue.get()
                if job is None:
                    is_closing = True
                else:
                    waiting.append(job)
                del job
            self._run_batch(waiting)

    def _run_batch(self, waiting: deque[J]) -> None:
        batch = self._select(waiting)
        try:
            self._run_round(batch)
        except BaseException as error:  # no caller may wait for ever
            for job in batch:
                job.status, job.error = "done", job.error or error
        for job in reversed(batch):
            if job.status == "retry":
                waiting.appendleft(job)
        for job in batch:
            if job.status == "done":
                job.complete()


def _oldest(waiting: deque[J]) -> list[J]:
    return [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
