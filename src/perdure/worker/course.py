"""One call on its way: run up to each wait, taken up again by whoever ended the wait, answered at its end.

read ─▶ advance ─▶ waits … resumed by who worked for all who wait ─▶ advance ─▶ answered
                              after a failure: by a thread that has nothing else to do (`Errands`)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from perdure.protocol.waiting import Steps, Waited, Work

MOST_ERRANDS: Final = 32


class Errands:
    """Work that no reader and no one who works for others may be kept with: in threads that end when it is done."""

    def __init__(self, failed: Callable[[BaseException], None], threads: int = MOST_ERRANDS) -> None:
        self.failed = failed
        self._limit = threads
        self._guard = threading.Lock()
        self._work: deque[Work] = deque()
        self._threads = 0

    def add(self, work: Work) -> None:
        with self._guard:
            self._work.append(work)
            if self._threads == self._limit:
                return
            self._threads += 1
        threading.Thread(target=self._run, name="errand", daemon=True).start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException as error:  # a call without an answer: whoever started us finds out
                self.failed(error)

    def _next(self) -> Work | None:
        with self._guard:
            if self._work:
                return self._work.popleft()
            self._threads -= 1
            return None


class Course:
    """`steps` answer the call themselves. What they raise is for `errands` to tell."""

    def __init__(self, steps: Steps[None], errands: Errands) -> None:
        self._steps = steps
        self._errands = errands

    def run(self) -> None:
        """On, and whatever is to be done for others before it can go on."""
        if (work := self.advance()) is not None:
            work()

    def advance(self) -> Work | None:
        """Up to the next wait or the end. Returns what is to be done for all who wait, where nobody is at it."""
        try:
            waited: Waited = self._steps.send(None)
        except StopIteration:
            return None
        return waited.begin(lambda: self._resumed(waited))

    def _resumed(self, waited: Waited) -> None:
        if waited.has_failed:
            self._errands.add(self.run)
            return
        try:
            work = self.advance()
        except BaseException as error:  # not for those who resumed it
            self._errands.failed(error)
            return
        if work is not None:
            self._errands.add(work)
