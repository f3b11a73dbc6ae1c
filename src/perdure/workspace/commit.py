"""The commit thread of a workspace: rounds in which many calls share a lock, a transaction and an fsync.

    lock the workspace ─▶ stage each job in one transaction ─▶ COMMIT (one fsync) ─▶ apply each job ─▶ unlock ─▶ answer

A job is staged under the lock, so that what it checked is still true when it is applied. Two jobs on one file never share a
round: jobs that name one path are kept apart in the queue, and a job that finds an earlier one's claim while it is staged,
through a link for instance, goes into the next round. A job that needs slow work (`deferred`) leaves the round; the work is
done outside the lock, then the job is staged again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from perdure.platform.fault_points import passed, point
from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.group_commit import MAX_BATCH, GroupCommit
from perdure.storage.journal import Journal
from perdure.workspace.deferred import Deferred
from perdure.workspace.jobs import Claims, Job, JournalJob, NextRound
from perdure.workspace.settler import Settler
from perdure.workspace.writer_lock import WriterLock

log = logging.getLogger(__name__)

RETRY_MAX_S: Final = 60
DEFERRED_THREADS: Final = 4


class _RecoveryNeeded(Exception):
    """Another process died in the middle of its round: recover before anything is staged."""


class Committer:
    """`recover` settles, under the lock, what other processes left undecided. It returns whether something had to stay open:
    the next round tries again, then rounds after a pause that doubles. `check_store` raises where the store is no longer
    the one that is open: nothing is staged or acknowledged then."""

    def __init__(
        self,
        journal: Journal,
        lock: WriterLock,
        recover: Callable[[], bool | None],
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._lock = lock
        self._recover_workspace = recover
        self._check_store = check_store
        self._known = 0  # the newest row that is known to be applied or recorded as failed
        self._has_stuck = False
        self._retry_at: float | None = None
        self._retries = 0
        self._unrecorded: list[tuple[Job, Exception]] = []  # failures that the journal does not have yet
        self.claims = Claims()
        self._commits: GroupCommit[Job] = GroupCommit("commit", self._run_round, _closed, _select)
        self._settler = Settler(self._commits.idle_s)
        self._executor: ThreadPoolExecutor | None = None
        self._guard = threading.Lock()

    def submit(self, job: Job) -> Future[Any]:
        """The future is completed when the change is on disk and durable in the journal, or refused."""
        return self._commits.submit(job)

    def transact(self, work: Callable[[], Any]) -> Any:
        """Run `work` in a transaction of its own and wait for it. Not on the commit thread."""
        return self._commits.submit(JournalJob(work)).result()

    def record_failures(self) -> None:
        """Before a call looks at the journal: record changes that failed while the journal failed, too."""
        if self._unrecorded:
            with suppress(ToolError, StorageError):
                self.transact(lambda: None)

    @property
    def has_unrecorded(self) -> bool:
        return bool(self._unrecorded)

    def recover(self) -> None:
        """Before any job."""
        with self._locked():
            self._recover()

    def request_recovery(self) -> None:
        """Recover before the next round: a call asks for a file that waits for it."""
        self._retry_at = 0.0

    def close(self) -> None:
        """Finish what waits, sync it, close its intents."""
        with self._guard:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()
        self._commits.close()
        self._settler.close()
        if self._settler.durable() or self._unrecorded:
            try:
                with self._locked():
                    self._record_outcomes()
            except (ToolError, StorageError) as error:
                log.warning("applied changes are settled at the next start: %s", error)
        self._lock.close()

    # --- rounds --------------------------------------------------------------------------------------------

    def _locked(self) -> _Locked:
        return _Locked(self._lock, self._check_store)

    def _run_round(self, batch: list[Job]) -> None:
        for job in batch:
            job.status, job.error = "done", None
        deferred: list[tuple[Job, Deferred]] = []
        try:
            with self._locked():
                self._round(batch, deferred)
        except OSError as error:
            raise tool_error(error) from None
        for job, work in deferred:
            self._defer(job, work)

    def _round(self, batch: list[Job], deferred: list[tuple[Job, Deferred]]) -> None:
        if self._unrecorded:
            self._record_outcomes()  # in a transaction of its own, so that jobs can see it
        point("commit.planning")
        try:
            settled = self._commit(batch, deferred)
        except BaseException:
            for job in batch:
                job.discard()
            raise
        self._forget_outcomes(settled)
        passed("commit.decided")
        staged = [job for job in batch if job.error is None and job.status == "done"]
        for job in staged:
            try:
                job.apply()
            except Exception as error:
                job.error = error
                self._unrecorded.append((job, error))
                self._has_stuck = self._has_stuck or job.is_stuck
            self._advance_watermark(job)
        passed("commit.landed")
        if self._unrecorded:
            try:
                self._record_outcomes()
            except JournalError as error:
                log.warning("a failed change is recorded in the next round: %s", error)
            self._advance_watermark(*staged)
        self._settler.add([changes for job in staged if job.error is None and (changes := job.applied())])

    def _commit(self, batch: list[Job], deferred: list[tuple[Job, Deferred]]) -> int:
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._recover()
        try:
            return self._journal.transact(lambda: self._stage_all(batch, deferred))
        except _RecoveryNeeded:
            self._recover()
            return self._journal.transact(lambda: self._stage_all(batch, deferred))

    def _stage_all(self, batch: list[Job], deferred: list[tuple[Job, Deferred]]) -> int:
        # Only after another process has written: the outcome of our own rows is known.
        if self._journal.head > self._known and self._needs_recovery():
            raise _RecoveryNeeded
        settled = self._write_outcomes()
        self.claims.begin_round()
        for job in batch:
            self.claims.begin_job()
            try:
                _check_cancelled(job)
                self._journal.nested(job.stage)
                self.claims.end_job()
            except JournalError:
                raise
            except NextRound:
                job.status = "retry"
            except Deferred as work:
                job.status = "parked"
                deferred.append((job, work))
            except (ToolError, StorageError, OSError) as error:
                self._refuse(job, tool_error(error))
            except Exception as error:  # an unexpected error is its own caller's alone
                job.error = error
        return settled

    def _refuse(self, job: Job, error: ToolError) -> None:
        job.error = error
        try:
            job.error = self._journal.nested(lambda: job.record_refusal(error))
        except JournalError:
            raise
        except (ToolError, StorageError, OSError) as failure:
            log.warning("a refused payload could not be kept: %s", failure)

    def _defer(self, job: Job, work: Deferred) -> None:
        with self._guard:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(DEFERRED_THREADS, "deferred")
            try:
                self._executor.submit(self._run_deferred, job, work)
                return
            except RuntimeError as error:  # closed, or no thread can be started
                job.error = error
        job.complete()

    def _run_deferred(self, job: Job, work: Deferred) -> None:
        try:
            job.deferred.run(work)
        except BaseException as error:
            job.error = error
            job.complete()
        else:
            self._commits.submit(job)

    # --- outcomes ------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        if self._recover_workspace():
            self._retry_at = time.monotonic() + (min(2**self._retries, RETRY_MAX_S) if self._retries else 0)
            self._retries += 1
        else:
            self._retry_at, self._retries = None, 0
        # What had to stay open is not applied: the watermark must not pass it.
        self._known = self._journal.newest_intent()
        self._has_stuck = self._known > 0

    def _needs_recovery(self) -> bool:
        return self._journal.newest_intent() > max(self._journal.applied_watermark(), self._known)

    def _advance_watermark(self, *jobs: Job) -> None:
        """For crash recovery: every row up to the watermark was applied or recorded as failed."""
        seqs = [seq for job in jobs for seq in job.seqs]
        if seqs and not self._unrecorded:
            self._known = max(seqs)
            if not self._has_stuck:
                self._journal.set_applied_watermark(self._known)

    def _write_outcomes(self) -> int:
        """In a transaction: close the intents of synced changes, record the failed ones. Returns how many were synced."""
        if durable := self._settler.durable():
            self._journal.settle(durable)
        for job, error in self._unrecorded:
            job.record_failure(self._journal, error)
        return len(durable)

    def _forget_outcomes(self, settled: int) -> None:
        """After COMMIT."""
        if settled:
            self._settler.forget(settled)
        for job, error in self._unrecorded:
            job.error = job.describe_failure(error)
        self._unrecorded.clear()

    def _record_outcomes(self) -> None:
        """A refused change must not come true at the next start."""
        self._forget_outcomes(self._journal.transact(self._write_outcomes))


class _Locked:
    """The workspace's lock, with the store checked under it. A class: a generator would cost more calls per round."""

    def __init__(self, lock: WriterLock, check_store: Callable[[], None]) -> None:
        self._lock = lock
        self._check_store = check_store

    def __enter__(self) -> None:
        self._lock.take()
        try:
            self._check_store()
        except BaseException:
            self._lock.give()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.give()


def _select(waiting: deque[Job]) -> list[Job]:
    """Take the oldest jobs that name different paths. The others keep their order."""
    batch: list[Job] = []
    later: list[Job] = []
    taken: set[str] = set()
    while waiting and len(batch) < MAX_BATCH:
        job = waiting.popleft()
        (later if job.paths & taken else batch).append(job)
        taken |= job.paths
    waiting.extendleft(reversed(later))
    return batch


def _check_cancelled(job: Job) -> None:
    if job.cancelled is not None and job.cancelled.is_set():
        raise refuse(
            "blocked",
            "cancelled",
            "the client cancelled the call before anything was written.",
            next_step=call_again(),
            suggested_action="abort",
        )


def _closed() -> ToolError:
    return refuse(
        "blocked",
        "closing",
        "the server is shutting down.",
        next_step=call_again(),
        suggested_action="retry_later",
    )
