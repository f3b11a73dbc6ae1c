"""Background fsync: applied changes are synced later, and their intents closed by the next commit.

The kernel writes dirty pages back after a few seconds, so a later fsync is cheap, and cheapest while no call writes.
Every open intent slows the next recovery, so their number is capped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.workspace.sync_pass import AppliedChanges, FailedSyncs, NotDurable, SyncPass

SETTLE_AFTER_S: Final = 6.0
CALM: Final = 1 / 3
LATEST: Final = 10
"""Both in units of the above: how long no call must have written, and the longest wait for that."""
SETTLE_AT: Final = 1024
AT_A_TIME: Final = 64


class Settler:
    """`idle_s` tells for how long no call has written."""

    def __init__(self, idle_s: Callable[[], float]) -> None:
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._applied: list[AppliedChanges] = []
        self._durable: list[int] = []
        self._failed = FailedSyncs()
        self._is_closing = False
        self._is_waiting = False
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)
        self._thread.start()

    def add(self, applied: list[AppliedChanges]) -> None:
        if not applied:
            return
        with self._changed:
            self._applied += applied
            self._failed.newest_row = max(applied[-1].seqs)
            if self._is_waiting or self._is_urgent():
                self._changed.notify_all()

    def durable(self) -> tuple[int, ...]:
        """The rows whose changes no longer need the journal."""
        with self._changed:
            return tuple(self._durable)

    def forget(self, settled: int) -> None:
        """As many of them are settled by now."""
        with self._changed:
            del self._durable[:settled]

    def settle(self) -> None:
        """Sync everything that was applied, now."""
        with self._changed:
            applied, self._applied = self._applied, []
        self._sync(applied, lambda: True)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self.settle()

    def _run(self) -> None:
        while self._is_due():
            with self._changed:
                applied, self._applied = self._applied, []
            is_late = len(applied) >= SETTLE_AT or not self._is_calm()
            rest = self._sync(applied, lambda: is_late or self._is_calm())  # noqa: B023
            with self._changed:
                self._applied[:0] = rest

    def _is_due(self) -> bool:
        """Wait until there are changes to sync, and no call writes or they cannot wait. False at the end."""
        with self._changed:
            self._is_waiting = True
            self._changed.wait_for(lambda: self._is_closing or bool(self._applied))
            self._is_waiting = False
            self._changed.wait_for(self._is_urgent, SETTLE_AFTER_S)
            until = time.monotonic() + LATEST * SETTLE_AFTER_S
            while not self._is_urgent() and not self._is_calm() and time.monotonic() < until:
                self._changed.wait(CALM * SETTLE_AFTER_S)
            return not self._is_closing

    def _is_urgent(self) -> bool:
        return self._is_closing or len(self._applied) >= SETTLE_AT

    def _is_calm(self) -> bool:
        return self._idle_s() >= CALM * SETTLE_AFTER_S

    def _sync(self, applied: list[AppliedChanges], goes_on: Callable[[], bool]) -> list[AppliedChanges]:
        """From the last on, some at a time; returns what is left. What fails stays open: the journal vouches for it."""
        syncing = SyncPass(self._failed)
        try:
            while applied and goes_on():
                some = applied[-AT_A_TIME:][::-1]
                applied = applied[:-AT_A_TIME]
                self._sync_some(some, syncing)
        finally:
            syncing.close()
        return applied

    def _sync_some(self, some: list[AppliedChanges], syncing: SyncPass) -> None:
        done: list[int] = []
        for changes in some:
            with suppress(OSError, ToolError, StorageError):  # then `sync` fails as well
                changes.begin_sync(syncing)
        for changes in some:
            with suppress(OSError, ToolError, StorageError, NotDurable):
                changes.sync(syncing)
                done += changes.seqs
        with self._changed:
            self._durable += done
