"""Something done in a thread of its own while its caller goes on: nobody waits for it to start."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """`result` waits for the end: what came of it, or what it raised, every time."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._running = _thread.allocate_lock()
        self._error: BaseException | None = None
        self._running.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:  # no thread to be had: then it is done now
            self._run()

    def _run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
        finally:
            self._running.release()

    def result(self) -> T:
        with self._running:
            if self._error is not None:
                raise self._error
            return self._result
