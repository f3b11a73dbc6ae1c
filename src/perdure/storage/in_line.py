"""Waiting in line for a round that one does for all: in a thread of one's own, or without any.

submitted   the thread waits (`wait`) until its job is done or it is its turn to lead
awaited     nobody waits: whoever leads resumes the call (`perdure.protocol.waiting`)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")
Work = Callable[[], None]


class Line(Protocol):
    """Where jobs wait for their round."""

    def enter(self, job: Any) -> bool:
        """Put a job in line. True where nobody leads: whoever asked does, from now on."""

    def lead(self) -> None:
        """Work for all in line."""


class InLine(Generic[T]):
    """A job, from getting in line to its value or its error."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.error: BaseException | None = None
        self.is_done = False
        self.lead: Work | None = None
        """Where a thread waits for this job: have that thread lead."""
        self._resume: Work | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def value(self) -> T:
        """What it came to, where nothing went wrong."""
        raise NotImplementedError

    def __await__(self) -> Generator[Self, None, T]:
        yield self
        return self.result()

    def begin(self, resume: Work) -> Work | None:
        self._resume = resume
        return self._line.lead if self._line.enter(self) else None

    def wait(self, patience_s: float = -1) -> bool:
        """Until it is done, or it is this thread's turn to lead; False where the patience was over first."""
        self._resume = self.lead = self._woken.release
        return self._line.enter(self) or self._woken.acquire(timeout=patience_s)

    def wait_on(self) -> None:
        """The patience is over, but it has come to this job meanwhile."""
        self._woken.acquire()

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    def finish(self) -> None:
        self.is_done = True
        resume, self._resume = self._resume, None
        assert resume is not None
        resume()

    def result(self) -> T:
        """Once. What went wrong knows from where it was raised, and there this job is known: neither would ever go."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error
        return self.value()
