"""Turns between processes: a lock file, taken in the order it was asked for, and never waited for too long.

SQLite's own busy handler sleeps and tries again, so a newcomer may pass those who wait; the kernel's queue is fair.
"""

from __future__ import annotations

import fcntl
import os
import threading
from typing import Final

from perdure.storage.state import state_error

PATIENCE_S: Final = 5.0


class Turns:
    """One holder at a time, in this process and among all others."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._waiter: threading.Thread | None = None
        self._arrived = threading.Condition()
        self._is_wanted = False
        self._is_held = False
        self._is_closed = False

    def take(self, seconds: float = PATIENCE_S) -> None:
        """Raises a typed fault where the turn does not come in time."""
        with self._arrived:
            if self._is_closed:
                raise state_error("resource", "state_closed", "the state store is closed", "safe")
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if self._waiter is None:
                try:
                    fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    # A thread waits in the kernel's queue, since that wait has no bound of its own.
                    self._waiter = threading.Thread(target=self._queue, name="state-turn", daemon=True)
                    self._waiter.start()
            self._is_wanted = True
            came = self._arrived.wait_for(lambda: self._is_held, seconds)
            self._is_wanted = False
            if not came:
                raise state_error("resource", "state_locked", "another process keeps the state store locked")
            self._is_held = False

    def give(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._arrived:
            if self._waiter is None and not self._is_closed and self._fd >= 0:
                os.close(self._fd)
            self._is_closed = True

    def _queue(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._arrived:
            self._waiter = None
            if self._is_wanted:
                self._is_held = True
                self._arrived.notify_all()
            else:
                fcntl.flock(self._fd, fcntl.LOCK_UN)  # it came too late for whoever asked
