"""Forgetting, now and then, what is older or larger than what is to be kept; a little at a time, between writes.

Each step is a job like any other, so it runs under the workspace's lock and in a transaction of its own. Files go
after that is durable. A file written within the last hour stays: a running call may be about to refer to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again
from perdure.storage.blobs import Blobs
from perdure.storage.errors import StorageError
from perdure.storage.journal import Digest, Journal, Retired
from perdure.workspace.commit import Committer
from perdure.workspace.jobs import Job
from perdure.workspace.retention_limits import Keep

log = logging.getLogger(__name__)

FIRST_S: Final = 30.0
EVERY_S: Final = 3600.0
STEP: Final = 200
PAUSE_S: Final = 0.02
IN_REACH: Final = 1000
FRESH_S: Final = 3600.0
DAY: Final = 86_400


class RetentionTask:
    """`once` does all there is to do; `start` has it done every hour in the background."""

    def __init__(self, committer: Committer, journal: Journal, blobs: Blobs, keep: Keep) -> None:
        self._committer = committer
        self._journal = journal
        self._blobs = blobs
        self._keep = keep
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        wait = FIRST_S
        while not self._closing.wait(wait):
            try:
                self.once()
            except (ToolError, StorageError, OSError) as error:
                log.warning("retention failed and is tried again in an hour: %s", error)
            wait = EVERY_S

    def once(self, now: float | None = None) -> int:
        """Until nothing is left to forget. Returns how many rows and entries were gone through."""
        now = time.time() if now is None else now
        gone = self._all(lambda: self._retire(now)) + self._all(lambda: self._expire(now))
        gone += self._all(lambda: self._journal.expire_shelf(STEP))
        self._sweep(now)
        return gone

    def preview(self, now: float | None = None) -> tuple[int, int]:
        """What `once` would go through now, and how many bytes of contents it would drop. Nothing is changed."""
        now = time.time() if now is None else now
        steps: tuple[Callable[[], Retired], ...] = (
            lambda: self._retire(now),
            lambda: self._expire(now),
            lambda: self._journal.expire_shelf(STEP),
        )

        def plan() -> None:
            before, rows, more = self._journal.stored_bytes(), 0, True
            for step in steps:
                more = True
                while more:
                    done = step()
                    rows, more = rows + done.rows, done.more
            raise _Preview(rows, before - self._journal.stored_bytes())

        try:
            self._committer.transact(plan)
        except _Preview as found:
            return found.rows, found.bytes
        raise AssertionError("a preview always ends its transaction")

    def _all(self, step: Callable[[], Retired]) -> int:
        gone = 0
        while not self._closing.is_set():
            done = self._forget(step)
            gone += done.rows
            if not done.more:
                break
            self._closing.wait(PAUSE_S)  # writers first
        return gone

    def _forget(self, step: Callable[[], Retired]) -> Retired:
        done: Retired = self._committer.submit(_Retirement(self._journal, self._blobs, step)).result()
        return done

    def _retire(self, now: float) -> Retired:
        keep = self._keep
        before = int((now - keep.days * DAY) * 1_000_000)
        return self._journal.retire(
            STEP, before=before, most_bytes=int(keep.megabytes * 1_000_000), in_reach=IN_REACH
        )

    def _expire(self, now: float) -> Retired:
        before = int((now - self._keep.answers_days * DAY) * 1_000_000)
        drafts = int((now - self._keep.days * DAY) * 1_000_000)
        return self._journal.expire(STEP, before=before, drafts_before=drafts)

    def _sweep(self, now: float) -> None:
        """Remove blobs that no row refers to: the call that wrote them was never committed."""
        old = [blob.sha256 for blob in self._blobs if blob.mtime < now - FRESH_S]
        for start in range(0, len(old), STEP):
            if self._closing.is_set():
                return
            some = [bytes.fromhex(sha) for sha in old[start : start + STEP]]

            def unknown(some: list[Digest] = some) -> Retired:
                return Retired(0, [sha for sha in some if not self._journal.has_content(sha)], more=False)

            self._forget(unknown)


class _Preview(ToolError):
    """Raised so that the transaction of a preview is rolled back."""

    def __init__(self, rows: int, size: int) -> None:
        super().__init__(
            refuse("blocked", "preview", "nothing was changed.", next_step=call_again()).envelope
        )
        self.rows = rows
        self.bytes = size


class _Retirement(Job):
    """One step: rows and entries go in the transaction, the files of their contents after COMMIT.

    A file that could not be removed is found by the next sweep.
    """

    def __init__(self, journal: Journal, blobs: Blobs, step: Callable[[], Retired]) -> None:
        super().__init__()
        self._journal = journal
        self._blobs = blobs
        self._step = step

    def stage(self) -> None:
        self.result = self._step()

    def apply(self) -> None:
        before = time.time() - FRESH_S
        for sha in self.result.files:
            if not self._journal.has_content(sha):  # a later job of the round may have referred to it again
                self._blobs.delete(sha.hex(), written_before=before)
