"""The event loop port of the supervisor, and a small implementation on `poll` for the stdio host.

asyncio's loop fits the port, and `perdure serve` uses that one. The stdio host has its own, since importing asyncio
takes about as long as everything else that it does before it answers `initialize`, and a third of its memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from perdure.platform.polling import CLOSED, READABLE, WRITABLE, new_poll

Callback = Callable[[], None]


class Timer(Protocol):
    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """Every callback runs on the loop's one thread. Readers and writers stay until they are removed."""

    def time(self) -> float: ...

    def add_reader(self, fd: int, callback: Callback, /) -> None: ...

    def remove_reader(self, fd: int, /) -> object: ...

    def add_writer(self, fd: int, callback: Callback, /) -> None: ...

    def remove_writer(self, fd: int, /) -> object: ...

    def call_later(self, delay: float, callback: Callback, /) -> Timer: ...

    def call_soon(self, callback: Callback, /) -> Timer: ...


class _Call:
    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        if (callback := self.callback) is not None:
            self.callback = None
            callback()


class PollLoop:
    """`on_idle` runs before the loop waits, when every callback has returned. An exception of a callback ends `run`."""

    def __init__(self) -> None:
        self.on_idle: Callback = _nothing
        self._poll = new_poll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = 0
        self._soon: deque[_Call] = deque()

    def time(self) -> float:
        return time.monotonic()

    def run(self, is_done: Callable[[], bool]) -> None:
        """Until the condition holds. A peer's next message goes before the idle work, every other time."""
        is_hurried = False
        while not is_done():
            ready = [] if is_hurried or self._soon else self._poll.poll(0)
            is_hurried = bool(ready)
            if not is_hurried:
                if not self._soon:
                    self.on_idle()
                ready = self._poll.poll(self._timeout())
            for fd, mask in ready:
                if mask & (READABLE | CLOSED) and (reader := self._readers.get(fd)) is not None:
                    reader()
                if mask & (WRITABLE | CLOSED) and (writer := self._writers.get(fd)) is not None:
                    writer()
            self._run_timers()
            for _ in range(len(self._soon)):
                self._soon.popleft().run()

    def add_reader(self, fd: int, callback: Callback) -> None:
        self._readers[fd] = callback
        self._watch(fd)

    def remove_reader(self, fd: int) -> None:
        if self._readers.pop(fd, None) is not None:
            self._watch(fd)

    def add_writer(self, fd: int, callback: Callback) -> None:
        self._writers[fd] = callback
        self._watch(fd)

    def remove_writer(self, fd: int) -> None:
        if self._writers.pop(fd, None) is not None:
            self._watch(fd)

    def call_later(self, delay: float, callback: Callback) -> Timer:
        self._number += 1
        call = _Call(callback)
        heappush(self._timers, (self.time() + delay, self._number, call))
        return call

    def call_soon(self, callback: Callback) -> Timer:
        call = _Call(callback)
        self._soon.append(call)
        return call

    def _watch(self, fd: int) -> None:
        mask = (READABLE if fd in self._readers else 0) | (WRITABLE if fd in self._writers else 0)
        if mask:
            self._poll.register(fd, mask)
        else:
            self._poll.unregister(fd)

    def _timeout(self) -> float | None:
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, (self._timers[0][0] - self.time()) * 1000.0 + 0.5)

    def _run_timers(self) -> None:
        if not self._timers:
            return
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2].run()


def _nothing() -> None:
    pass
