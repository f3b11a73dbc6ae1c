"""One commits for everyone: many writers share a transaction, an fsync and the workspace's lock.

    callers ──submit──▶ queue ──▶ lock the workspace ─▶ plan each, in one transaction ─▶ COMMIT (one fsync)
                                      make ready beside it what has no name yet ─▶ land each ─▶ unlock ─▶ callers go on

A caller that finds nobody at it leads: it does the work of all who wait. Who waits in its own thread hands over to
the next as soon as its own job is done; who has nothing else to do, because its call goes on from here, leads on.

A job is planned under the lock, so that what it checked is still true when it lands. Two jobs on one file
never share a round: jobs that name one path are kept apart in the queue, and a job that finds while it is planned that
an earlier one has claimed the same file, through a link for instance, is planned again in the next round. What has
landed is settled later, once it is known to be on disk for good.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from perdure.platform.fault_points import passed, point
from perdure.protocol import relief
from perdure.protocol.calls import Flag
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.beside import Helper
from perdure.storage.journal import Journal, JournalError
from perdure.storage.os_errors import os_refusal
from perdure.workspace.jobs import Claims, Job, Landing, NextRound
from perdure.workspace.settler import Settler
from perdure.workspace.writer_lock import WriterLock

log = logging.getLogger(__name__)

MOST_PER_ROUND: Final = 64
RETRY_MOST_S: Final = 60
MOST_AHEAD: Final = 128
"""Files of one round that are made ready before they are decided: each holds two descriptors."""


class _LeftUndone(Exception):
    """Another process died in the middle of its round: that has to be settled before anything is planned."""


class Committer:
    """`settle_left` settles what other processes left undecided, under the lock. It returns whether something had to
    stay open: the next round tries again, then rounds after a while that doubles. `check_store` raises where the store
    is no longer the one that is open: nothing is planned or acknowledged then."""

    def __init__(
        self,
        journal: Journal,
        lock: WriterLock,
        settle_left: Callable[[], bool | None],
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._settle_left = settle_left
        self._known = 0  # the newest row of which it is known here what became of it
        self._has_stuck = False
        self._retry_at: float | None = None
        self._retries = 0
        self._lock = lock
        self._check_store = check_store
        self._waiting: deque[Job] = deque()
        self._is_led = False
        self._led_until = time.monotonic()
        self._guard = threading.Lock()
        self._unled = threading.Condition(self._guard)  # for whoever closes
        self._owed: list[tuple[Landing, Exception]] = []
        self._closing = False
        self._settler = Settler(self._idle_s)
        self._helper = Helper()
        self.claims = Claims()

    def submit(
        self,
        paths: frozenset[str],
        plan: Callable[[], Landing | None],
        cancelled: Flag | None = None,
    ) -> Any:
        """Block until the change is on disk and acknowledged, or refused. Raises what refused it."""
        job = self.job(paths, plan, cancelled)
        job.wait()
        if not job.is_done:
            self.lead(job)
        return job.result()

    def job(
        self,
        paths: frozenset[str],
        plan: Callable[[], Landing | None],
        cancelled: Flag | None = None,
    ) -> Job:
        """The same to be awaited, which holds no thread."""
        return Job(self, paths, plan, cancelled)

    def enter(self, job: Job) -> bool:
        """Put a job in line. True where nobody leads: whoever asked does, from now on."""
        with self._guard:
            is_closing = self._closing
            if not is_closing:
                self._waiting.append(job)
                leads = not self._is_led
                self._is_led = True
                return leads
        job.error = refuse(
            "blocked",
            "closing",
            "the server is shutting down.",
            next_step=call_again(),
            suggested_action="retry_later",
        )
        job.finish()
        return False

    def pay_debts(self) -> None:
        """Before anybody looks: take down what did not land, where the journal failed when it was to be."""
        if self.has_debts:
            with suppress(ToolError):
                self.submit(frozenset(), lambda: None)

    @property
    def has_debts(self) -> bool:
        return bool(self._owed)

    def locked(self, work: Callable[[], None]) -> None:
        """Run something of our own under the workspace's lock."""
        with self._lock.held():
            self._check_store()
            work()

    def recover(self) -> None:
        """Before any job."""
        self.locked(self._recover)

    def request_recovery(self) -> None:
        """Before the next round: somebody asks for a file that waits for it."""
        self._retry_at = 0.0

    def _recover(self) -> None:
        if self._settle_left():
            self._retry_at = time.monotonic() + (min(2**self._retries, RETRY_MOST_S) if self._retries else 0)
            self._retries += 1
        else:
            self._retry_at, self._retries = None, 0
        # What had to stay open has not landed: the watermark must not pass it.
        self._known = self._journal.newest_intent()
        self._has_stuck = self._known > 0

    def close(self) -> None:
        """Finish what waits, make it durable, settle it."""
        with self._unled:
            self._closing = True
            self._unled.wait_for(lambda: not self._is_led)
        self._settler.close()
        self._helper.close()
        if self._settler.durable() or self._owed:
            try:
                self.locked(self._conclude_owed)
            except ToolError as error:
                log.warning("changes that landed are settled at the next start: %s", error)
        self._lock.close()

    # --- rounds --------------------------------------------------------------------------------------------

    def lead(self, own: Job | None = None) -> None:
        """Round after round, until nobody waits; or until one's own job is done, then somebody else goes on."""
        while batch := self._next(own):
            try:
                self.locked(lambda: self._round(batch))
            except BaseException as error:  # a caller must never wait for ever
                shown = os_refusal(error) if isinstance(error, OSError) else error
                for job in batch:
                    job.error = job.error or shown
            postponed = [job for job in batch if job.is_postponed and job.error is None]
            if postponed:
                with self._guard:
                    self._waiting.extendleft(reversed(postponed))
            for job in batch:
                if job not in postponed:
                    job.finish()

    def _idle_s(self) -> float:
        return 0.0 if self._is_led else time.monotonic() - self._led_until

    def _next(self, own: Job | None) -> list[Job]:
        with self._guard:
            if not self._waiting:
                self._is_led = False
                self._led_until = time.monotonic()
                if self._closing:
                    self._unled.notify_all()
                return []
            if own is not None and own.is_done and self._is_handed_over():
                return []
            return self._take()

    def _is_handed_over(self) -> bool:
        """To the thread of one who waits; where those who wait have none, to one made for them."""
        for job in self._waiting:
            if job.lead is not None:
                job.lead()
                return True
        try:
            threading.Thread(target=self.lead, name="leader", daemon=True).start()
        except RuntimeError:
            return False  # there are too many
        return True

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
        if self._owed:
            self._conclude_owed()  # on its own, so that those who plan can see it
        point("commit.planning")
        try:
            settled = self._planned(batch)
        except BaseException:
            for job in batch:
                if job.landing is not None:
                    job.landing.close()
            raise
        self._forget_accounts(settled)
        passed("commit.decided")
        for job in batch:
            if job.landing is not None:
                try:
                    job.landing.land()
                except Exception as error:
                    job.error = error
                    self._owed.append((job.landing, error))
                    self._has_stuck = self._has_stuck or job.landing.is_stuck
                self._mark(job.landing)
        passed("commit.landed")
        if self._owed:
            try:
                self._conclude_owed()
            except JournalError as error:
                log.warning("what did not land is recorded at the next round: %s", error)
            self._mark(*(job.landing for job in batch if job.landing is not None))
        self._settler.add(
            [j.landing for j in batch if j.landing is not None and j.error is None and j.landing.seqs]
        )

    def _mark(self, *landings: Landing) -> None:
        """For whoever comes after a kill: up to here everything landed, or it was said that it did not."""
        seqs = [seq for landing in landings for seq in landing.seqs]
        if seqs and not self._owed:
            self._known = max(seqs)
            if not self._has_stuck:
                self._journal.mark_landed(self._known)

    def _planned(self, batch: list[Job]) -> int:
        if self._retry_at is not None and time.monotonic() >= self._retry_at:
            self._recover()
        try:
            return self._journal.transact(lambda: self._plan_all(batch))
        except _LeftUndone:
            self._recover()
            return self._journal.transact(lambda: self._plan_all(batch))

    def _plan_all(self, batch: list[Job]) -> int:
        # Only where somebody else has written since: what became of our own is known.
        if self._journal.head > self._known and self._has_left():
            raise _LeftUndone
        settled = self._settle_accounts()
        self.claims.begin_round()
        for job in batch:
            job.is_postponed = False
            if job.cancelled is not None and job.cancelled.is_set():
                job.error = refuse(
                    "blocked",
                    "cancelled",
                    "the client cancelled the call before anything was written.",
                    next_step=call_again(),
                    suggested_action="abort",
                )
                continue
            self.claims.begin_job()
            try:
                job.landing = self._journal.nested(job.plan)
                self.claims.end_job()
            except JournalError:
                raise
            except NextRound:
                job.is_postponed = True
            except ToolError as error:
                job.error = error
            except OSError as error:
                job.error = os_refusal(error)
            except Exception as error:  # one that nobody foresaw is its own caller's alone
                job.error = error
        room = MOST_AHEAD
        for job in batch:
            if job.landing is not None and room:
                room -= job.landing.begin(self._helper, room)
        relief.if_asked()  # the commit waits for the disk
        return settled

    def _has_left(self) -> bool:
        return self._journal.newest_intent() > max(self._journal.landed(), self._known)

    def _settle_accounts(self) -> int:
        """In a transaction: what is durable by now, and what did not land. Returns how much of the former."""
        durable = self._settler.durable()
        self._journal.settle(durable)
        for landing, error in self._owed:
            landing.failed(self._journal, error)
        return len(durable)

    def _forget_accounts(self, settled: int) -> None:
        """Once they are committed, and not before."""
        self._settler.forget(settled)
        for landing, error in self._owed:
            landing.concluded(error)
        self._owed.clear()

    def _conclude_owed(self) -> None:
        """A refusal must not come true at the next start."""
        self._forget_accounts(self._journal.transact(self._settle_accounts))
