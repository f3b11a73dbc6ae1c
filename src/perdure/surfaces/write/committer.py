"""One thread commits for everyone: many writers share a transaction, an fsync and the workspace's lock.

    callers ──submit──▶ queue ──▶ lock the workspace ─▶ plan each, in one transaction ─▶ COMMIT (one fsync)
                                                     ─▶ land each (rename) ─▶ unlock ─▶ callers go on

A job is planned under the lock, so that what it checked is still true when it lands. Two jobs on one path
never share a round. What has landed is settled later, once it is known to be on disk for good.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from perdure.model.envelope import ToolError, refuse
from perdure.model.fault_points import point
from perdure.storage.journal import Journal

MOST_PER_ROUND: Final = 64
SETTLE_AFTER_S: Final = 2.0
SETTLE_AT: Final = 256


class Landing(Protocol):
    """A planned change whose intent is durable: what is left is to make it so."""

    seqs: list[int]
    payload: Any

    def land(self) -> None:
        """Put the change on disk. Raises ToolError where it cannot be, with everything as it was."""

    def failed(self, journal: Journal, error: ToolError) -> ToolError:
        """In a transaction: conclude the intents that did not land; the error as the caller will see it."""

    def sync(self) -> None:
        """Make what landed durable by itself, so that the journal no longer has to vouch for it."""


class Job:
    """One caller's change, from submission to its payload or its error."""

    def __init__(
        self, paths: frozenset[str], plan: Callable[[], Landing], cancelled: threading.Event | None
    ) -> None:
        self.paths = paths
        self.plan = plan
        self.cancelled = cancelled
        self.landing: Landing | None = None
        self.error: BaseException | None = None
        self._done = threading.Event()

    def finish(self, error: BaseException | None = None) -> None:
        self.error = error or self.error
        self._done.set()

    def wait(self) -> Any:
        self._done.wait()
        if self.error is not None:
            raise self.error
        return self.landing.payload if self.landing is not None else None


class Committer:
    def __init__(self, journal: Journal, lock_path: str) -> None:
        self._journal = journal
        self._lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._landed: list[Landing] = []
        self._durable: list[int] = []
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._settler = threading.Thread(target=self._settle_landed, name="settler", daemon=True)
        self._thread.start()
        self._settler.start()

    def submit(
        self, paths: frozenset[str], plan: Callable[[], Landing], cancelled: threading.Event | None = None
    ) -> Any:
        """Block until the change is on disk and acknowledged, or refused. Raises what refused it."""
        job = Job(paths, plan, cancelled)
        with self._changed:
            if self._closing:
                raise refuse("blocked", "closing", "the worker is closing", suggested_action="retry_later")
            self._waiting.append(job)
            self._changed.notify_all()
        return job.wait()

    def locked(self, work: Callable[[], None]) -> None:
        """Run something of our own under the workspace's lock, before any job: recovery."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            work()
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Finish what waits, make it durable, settle it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        self._settler.join()
        self._sync(self._landed)
        if self._durable:
            self.locked(lambda: self._journal.transact(lambda: self._journal.settle(self._durable)))
        os.close(self._lock)

    # --- rounds --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = self._take()
            try:
                self.locked(lambda: self._round(batch))  # noqa: B023
            except BaseException as error:  # a caller must never wait for ever
                for job in batch:
                    job.finish(job.error or error)
            for job in batch:
                job.finish()

    def _take(self) -> list[Job]:
        """The oldest jobs that touch different paths. The others keep their place."""
        batch: list[Job] = []
        later: list[Job] = []
        taken: set[str] = set()
        while self._waiting and len(batch) < MOST_PER_ROUND:
            job = self._waiting.popleft()
            (later if job.paths & taken else batch).append(job)
            taken |= job.paths
        self._waiting.extendleft(reversed(later))
        return batch

    def _round(self, batch: list[Job]) -> None:
        point("commit.planning")
        with self._changed:
            durable, self._durable = self._durable, []
        try:
            self._journal.transact(lambda: self._plan_all(batch, durable))
        except BaseException:
            with self._changed:
                self._durable += durable
            raise
        point("commit.decided")
        failed: list[tuple[Job, ToolError]] = []
        for job in batch:
            if job.landing is None:
                continue
            try:
                job.landing.land()
            except ToolError as error:
                failed.append((job, error))
        point("commit.landed")
        if failed:
            self._journal.transact(lambda: self._conclude(failed))
        with self._changed:
            self._landed += [
                j.landing for j in batch if j.landing is not None and j.error is None and j.landing.seqs
            ]
            self._changed.notify_all()

    def _plan_all(self, batch: list[Job], durable: list[int]) -> None:
        self._journal.settle(durable)
        for job in batch:
            if job.cancelled is not None and job.cancelled.is_set():
                job.error = refuse("blocked", "cancelled", "cancelled before it was written")
                continue
            try:
                job.landing = self._journal.nested(job.plan)
            except ToolError as error:
                job.error = error

    def _conclude(self, failed: list[tuple[Job, ToolError]]) -> None:
        for job, error in failed:
            assert job.landing is not None
            job.error = job.landing.failed(self._journal, error)

    # --- settling ---------------------------------------------------------------------------------------------

    def _settle_landed(self) -> None:
        """Now and then, make what landed durable by itself; the next round takes it off the journal's list."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or bool(self._landed))
                if not self._closing:
                    self._changed.wait_for(
                        lambda: self._closing or len(self._landed) >= SETTLE_AT, SETTLE_AFTER_S
                    )
                if self._closing:
                    return
                landed, self._landed = self._landed, []
            self._sync(landed)

    def _sync(self, landed: list[Landing]) -> None:
        done: list[int] = []
        for landing in landed:
            try:
                landing.sync()
            except OSError:
                continue  # it stays open; recovery vouches for it
            done += landing.seqs
        with self._changed:
            self._durable += done
