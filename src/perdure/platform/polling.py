"""Waiting until descriptors are readable or writable.

`new_poll` gives an object with `register(fd, events)`, `unregister(fd)` and `poll(milliseconds)`. Its answers are
pairs of a descriptor and its events; `CLOSED` may be among them without being asked for.
"""

from __future__ import annotations

import select
from collections.abc import Iterable
from typing import Final, Protocol


class Poll(Protocol):
    def register(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def poll(self, timeout: float | None = ..., /) -> list[tuple[int, int]]: ...


READABLE: Final = select.POLLIN
WRITABLE: Final = select.POLLOUT
CLOSED: Final = select.POLLHUP | select.POLLERR


def new_poll() -> Poll:
    """For one thread: two threads must not use the same."""
    return select.poll()


def wait(fd: int, events: int, seconds: float | None) -> bool:
    """Whether one of the events came in time, or the descriptor was closed. Without events only that counts."""
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def wait_readable(fds: Iterable[int], seconds: float | None) -> list[int]:
    """The descriptors that can be read, an end of input among them; empty after a timeout."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, READABLE)
    return [fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000)]
