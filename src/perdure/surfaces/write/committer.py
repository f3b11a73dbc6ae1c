"""One commits for everyone: many writers share a transaction, an fsync and the workspace's lock.

    callers ──submit──▶ queue ──▶ lock the workspace ─▶ plan each, in one transaction ─▶ COMMIT (one fsync)
                                                     ─▶ land each (rename) ─▶ unlock ─▶ callers go on

A caller that finds nobody at it leads: it does the work of all who wait, then hands over to the next of them.

A job is planned under the lock, so that what it checked is still true when it lands. Two jobs on one path
never share a round. What has landed is settled later, once it is known to be on disk for good.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from perdure.model.envelope import ToolError, refuse
from perdure.model.fault_points import passed, point
from perdure.storage.durable import close_quietly
from perdure.storage.journal import Journal, JournalError
from perdure.storage.os_errors import os_refusal
from perdure.surfaces.port import Flag

MOST_PER_ROUND: Final = 64
# Systems write back by themselves what is some seconds old: what is synced after that costs commits little.
SETTLE_AFTER_S: Final = 6.0
SETTLE_AT: Final = 512


class Landing(Protocol):
    """A planned change whose intent is durable: what is left is to make it so."""

    seqs: list[int]
    payload: Any
    is_stuck: bool
    """It failed, and a part of it could not be taken back: its intents stay open, for the next start."""

    def land(self) -> None:
        """Put the change on disk. Raises ToolError where it cannot be, with everything as it was."""

    def failed(self, journal: Journal, error: Exception) -> None:
        """In a transaction: conclude the intents that did not land. Called again where that did not commit."""

    def concluded(self, error: Exception) -> None:
        """It did: the error may now tell what was kept."""

    def close(self) -> None:
        """Give up what is held for a landing that does not happen."""

    def begin_sync(self) -> None:
        """Start on what `sync` will wait for."""

    def sync(self, synced: set[tuple[int, str]]) -> None:
        """Make what landed durable by itself, so that the journal no longer has to vouch for it."""


class NoFiles:
    """A round of the journal alone: no file changes with it, so nothing can fail to land."""

    is_stuck = False

    def __init__(self, payload: Any) -> None:
        self.seqs: list[int] = []
        self.payload = payload

    def land(self) -> None:
        pass

    def failed(self, journal: Journal, error: Exception) -> None:
        pass

    def concluded(self, error: Exception) -> None:
        pass

    def close(self) -> None:
        pass

    def begin_sync(self) -> None:
        pass

    def sync(self, synced: set[tuple[int, str]]) -> None:
        pass


class Job:
    """One caller's change, from submission to its payload or its error."""

    def __init__(
        self, paths: frozenset[str], plan: Callable[[], Landing | None], cancelled: Flag | None
    ) -> None:
        self.paths = paths
        self.plan = plan
        self.cancelled = cancelled
        self.landing: Landing | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self._woken = threading.Lock()
        self._woken.acquire()

    def finish(self, error: BaseException | None = None) -> None:
        self.error = error or self.error
        self.is_done = True
        self.wake()

    def wake(self) -> None:
        """Done, or else it is this caller's turn to lead."""
        self._woken.release()

    def wait(self) -> None:
        self._woken.acquire()

    def result(self) -> Any:
        """Once. What went wrong knows from where it was raised, and there this job is known: neither would ever go."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self.landing.payload if self.landing is not None else None


class _LeftUndone(Exception):
    """Another process died in the middle of its round: that has to be settled before anything is planned."""


class Committer:
    """`settle_left` settles what other processes left undecided, under the lock."""

    def __init__(self, journal: Journal, lock_path: str, settle_left: Callable[[], None]) -> None:
        self._journal = journal
        self._settle_left = settle_left
        self._known = 0  # the newest row of which it is known here what became of it
        self._has_stuck = False
        self._lock_path = lock_path
        self._lock = _opened(lock_path)
        self._waiting: deque[Job] = deque()
        self._is_led = False
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)  # for the settler, and whoever closes
        self._landed: list[Landing] = []
        self._durable: list[int] = []
        self._owed: list[tuple[Landing, Exception]] = []
        self._closing = False
        self._settling = False
        self._settler = threading.Thread(target=self._settle_landed, name="settler", daemon=True)
        self._settler.start()

    def submit(
        self,
        paths: frozenset[str],
        plan: Callable[[], Landing | None],
        cancelled: Flag | None = None,
    ) -> Any:
        """Block until the change is on disk and acknowledged, or refused. Raises what refused it."""
        job = Job(paths, plan, cancelled)
        with self._guard:
            if self._closing:
                raise refuse("blocked", "closing", "the worker is closing", suggested_action="retry_later")
            self._waiting.append(job)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            job.wait()
        if not job.is_done:
            self._lead(job)
        return job.result()

    def pay_debts(self) -> None:
        """Before anybody looks: take down what did not land, where the journal failed when it was to be."""
        if self._owed:
            with suppress(ToolError):
                self.submit(frozenset(), lambda: None)

    def locked(self, work: Callable[[], None]) -> None:
        """Run something of our own under the workspace's lock."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            work()
        finally:
            self._unlock()

    def recover(self) -> None:
        """Before any job."""
        self.locked(self._recover)

    def _recover(self) -> None:
        self._settle_left()
        self._known = self._journal.newest_intent()  # what had to stay open now is for the next start

    def _unlock(self) -> None:
        """What was done stays done, whatever becomes of the lock: it goes with its descriptor at the latest."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        except OSError:
            fresh = _opened(self._lock_path)
            close_quietly(self._lock)
            self._lock = fresh

    def close(self) -> None:
        """Finish what waits, make it durable, settle it."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_led)
        self._settler.join()
        self._sync(self._landed)
        if self._durable or self._owed:
            with suppress(JournalError):  # what is not settled is for the next start
                self.locked(self._conclude_owed)
        close_quietly(self._lock)

    # --- rounds --------------------------------------------------------------------------------------------

    def _lead(self, own: Job) -> None:
        """Round after round until one's own job is done, then the next who waits goes on."""
        while not own.is_done:
            with self._guard:
                batch = self._take()
            try:
                self.locked(lambda: self._round(batch))  # noqa: B023
            except BaseException as error:  # a caller must never wait for ever
                shown = os_refusal(error) if isinstance(error, OSError) else error
                for job in batch:
                    job.error = job.error or shown
            for job in batch:
                job.finish()
        with self._guard:
            if self._waiting:
                self._waiting[0].wake()
            else:
                self._is_led = False
                if self._closing:
                    self._changed.notify_all()

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
            with suppress(JournalError):  # then the next round owes it
                self._conclude_owed()
            self._mark(*(job.landing for job in batch if job.landing is not None))
        with self._changed:
            self._landed += [
                j.landing for j in batch if j.landing is not None and j.error is None and j.landing.seqs
            ]
            if len(self._landed) >= SETTLE_AT or not self._settling:
                self._changed.notify_all()

    def _mark(self, *landings: Landing) -> None:
        """For whoever comes after a kill: up to here everything landed, or it was said that it did not."""
        seqs = [seq for landing in landings for seq in landing.seqs]
        if seqs and not self._owed:
            self._known = max(seqs)
            if not self._has_stuck:
                self._journal.mark_landed(self._known)

    def _planned(self, batch: list[Job]) -> int:
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
        for job in batch:
            if job.cancelled is not None and job.cancelled.is_set():
                job.error = refuse("blocked", "cancelled", "cancelled before it was written")
                continue
            try:
                job.landing = self._journal.nested(job.plan)
            except JournalError:
                raise
            except ToolError as error:
                job.error = error
            except OSError as error:
                job.error = os_refusal(error)
            except Exception as error:  # one that nobody foresaw is its own caller's alone
                job.error = error
        return settled

    def _has_left(self) -> bool:
        return self._journal.newest_intent() > max(self._journal.landed(), self._known)

    def _settle_accounts(self) -> int:
        """In a transaction: what is durable by now, and what did not land. Returns how much of the former."""
        with self._changed:
            durable = tuple(self._durable)
        self._journal.settle(durable)
        for landing, error in self._owed:
            landing.failed(self._journal, error)
        return len(durable)

    def _forget_accounts(self, settled: int) -> None:
        """Once they are committed, and not before."""
        with self._changed:
            del self._durable[:settled]
        for landing, error in self._owed:
            landing.concluded(error)
        self._owed.clear()

    def _conclude_owed(self) -> None:
        """A refusal must not come true at the next start."""
        self._forget_accounts(self._journal.transact(self._settle_accounts))

    # --- settling ---------------------------------------------------------------------------------------------

    def _settle_landed(self) -> None:
        """Now and then, make what landed durable by itself; the next round takes it off the journal's list."""
        while True:
            with self._changed:
                self._settling = False
                self._changed.wait_for(lambda: self._closing or bool(self._landed))
                self._settling = True
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
            with suppress(OSError, ToolError):
                landing.begin_sync()
        synced: set[tuple[int, str]] = set()
        for landing in landed:
            try:
                landing.sync(synced)
            except (OSError, ToolError):
                continue  # it stays open, and the journal vouches for it
            done += landing.seqs
        with self._changed:
            self._durable += done


def _opened(lock_path: str) -> int:
    return os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
