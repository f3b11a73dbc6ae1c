"""A content taken while it still comes, by several who do not wait for each other."""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator
from queue import SimpleQueue

from perdure.storage.beside import Beside, Run, in_a_thread


class Follower:
    """Takes a content in a thread of its own, at its own pace.

    `take` gets the beginning of the content, longer each time. `drop` gives up what came of it: once, and never while
    something is being taken, whose files must not be closed under it. Where there is no thread to be had, whoever waits for
    it takes all of it.
    """

    def __init__(self, take: Callable[[memoryview], None], drop: Callable[[], None] = lambda: None) -> None:
        self._take = take
        self._drop = drop
        self._reached: SimpleQueue[memoryview | None] = SimpleQueue()
        self._guard = _thread.allocate_lock()
        self._is_unwanted = self._is_over = False
        self._postponed: Run | None = None
        self._taking = Beside(self._run, self._begin)

    def reach(self, beginning: memoryview) -> None:
        """So much of it is there."""
        self._reached.put(beginning)

    def end(self) -> None:
        """No more will come."""
        self._reached.put(None)

    def result(self) -> None:
        """After the end: wait until all of it is taken. Raises what that raised, every time. Not for several threads."""
        self._go_on()
        self._taking.result()

    def close(self) -> None:
        """Nobody needs it any more. Nobody waits for what is still being taken either."""
        with self._guard:
            self._is_unwanted = True
            is_over = self._is_over
        if is_over:
            self._drop()
        else:
            self.end()
            self._go_on()

    def _begin(self, run: Run) -> None:
        try:
            in_a_thread(run)
        except RuntimeError:
            self._postponed = run

    def _go_on(self) -> None:
        postponed, self._postponed = self._postponed, None
        if postponed is not None:
            postponed()

    def _beginnings(self) -> Iterator[memoryview]:
        """As they come, each longer than the one before; of several at once the longest."""
        size, has_ended = 0, False
        while not has_ended and (newest := self._reached.get()) is not None:
            while not has_ended and not self._reached.empty():
                newer = self._reached.get()
                has_ended, newest = newer is None, newer or newest
            if self._is_unwanted:
                return
            if len(newest) > size:
                size = len(newest)
                yield newest

    def _run(self) -> None:
        try:
            for beginning in self._beginnings():
                self._take(beginning)
        finally:
            with self._guard:
                self._is_over = True
                is_unwanted = self._is_unwanted
            if is_unwanted:
                self._drop()
