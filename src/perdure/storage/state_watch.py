"""Wakes calls that wait for a store to pass a revision, whichever process changed it.

A commit of this process wakes waiters at once. One thread polls for commits of other processes, only while a call waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from perdure.storage.errors import StateError

IDLE_S: Final = 2.0
TROUBLE_S: Final = 0.25


class Watch:
    """`look(known)` gives the store's revision; it may block for a moment until that is beyond `known`."""

    def __init__(self, look: Callable[[int], int] | None = None) -> None:
        self._look = look
        self._known = 0
        self._waiters = 0
        self._changed = threading.Condition()
        self._is_looking = False
        self._is_closed = False

    def advance(self, revision: int) -> None:
        with self._changed:
            if revision > self._known:
                self._known = revision
                self._changed.notify_all()

    def wait_beyond(self, revision: int, seconds: float) -> bool:
        with self._changed:
            if self._known > revision:
                return True
            self._waiters += 1
            self._start()
            try:
                return self._changed.wait_for(lambda: self._known > revision or self._is_closed, seconds)
            finally:
                self._waiters -= 1

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _start(self) -> None:
        if self._look is not None and not self._is_looking and not self._is_closed:
            self._is_looking = True
            threading.Thread(target=self._run, name="state-watch", daemon=True).start()

    def _run(self) -> None:
        assert self._look is not None
        last_wanted = time.monotonic()
        while True:
            with self._changed:
                now = time.monotonic()
                last_wanted = now if self._waiters else last_wanted
                if self._is_closed or now - last_wanted > IDLE_S:
                    self._is_looking = False
                    return
                known = self._known
            try:
                self.advance(self._look(known))
            except StateError:
                time.sleep(TROUBLE_S)  # a waiter finds out by itself when it asks the store
