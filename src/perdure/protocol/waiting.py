"""Calls that wait without a thread: a coroutine awaits what others settle, and goes on in whoever settled it.

    steps ──awaits──▶ Waited.begin(resume) ──▶ resume() by the one who worked for all who wait ──▶ steps go on

What is done between two waits is brief, since others wait for the thread it is done in. What is not brief says so
first (`await ASIDE`), and so does whatever follows a failure: that is never resumed by those who work for others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from perdure.protocol import relief

T = TypeVar("T")

Work = Callable[[], None]


class Waited(Protocol):
    """What a coroutine yields to whoever runs it."""

    def begin(self, resume: Work) -> Work | None:
        """Get in line; `resume` is called once, when it is settled. Returns work to be done first, for all in line."""

    @property
    def has_failed(self) -> bool:
        """Once settled: what follows may take its time."""


Steps = Coroutine[Any, None, T]


class _Aside:
    """The rest may take long: it is for a thread that nobody waits for."""

    has_failed = False

    def begin(self, resume: Work) -> Work:
        def aside() -> None:
            relief.now()
            resume()

        return aside

    def __await__(self) -> Generator[Waited, None, None]:
        yield self


ASIDE: Final = _Aside()


def finished(steps: Steps[T]) -> T:
    """All of it, in this thread."""
    while True:
        try:
            waited: Waited = steps.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        settled = threading.Lock()
        settled.acquire()
        if (work := waited.begin(settled.release)) is not None:
            work()
        settled.acquire()
