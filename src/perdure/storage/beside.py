"""Something done in a thread of its own while its caller goes on: nobody waits for it to start.

A thread that is done with one thing is left to the next: to make one, with a stack that is touched anew, costs as much as
many of the things that are done beside others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from perdure.risk.free_list import Spares

NAME: Final = "beside"
HELPER: Final = "helper"
T = TypeVar("T")
Run = Callable[[], None]


class _Thread:
    """Does one thing at a time, and waits for the next."""

    def __init__(self) -> None:
        self._runs: SimpleQueue[Run] = SimpleQueue()
        threading.Thread(target=self._work, name=NAME, daemon=True).start()

    def do(self, run: Run) -> None:
        self._runs.put(run)

    def _work(self) -> None:
        _called(NAME)
        while True:
            self._runs.get()()
            _threads.give(self)


_threads: Final = Spares(_Thread)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)  # a forked process has none of them


def in_a_thread(run: Run) -> None:
    """Raises RuntimeError where there is no thread to be had."""
    _threads.take().do(run)


class Beside(Generic[T]):
    """`result` waits for the end: what came of it, or what it raised, every time."""

    def __init__(self, work: Callable[[], T], start: Callable[[Run], None] = in_a_thread) -> None:
        self._work: Callable[[], T] | None = work
        self._running = threading.Lock()
        self._error: BaseException | None = None
        self._running.acquire()
        try:
            start(self._run)
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


class Helper:
    """One thread that is kept, for brief work beside others': to wake it takes less than to make one."""

    def __init__(self) -> None:
        self._runs: SimpleQueue[Run | None] = SimpleQueue()
        self._is_there = False

    def start(self, run: Run) -> None:
        """After what was given before. Not for several threads at once."""
        if not self._is_there:
            in_a_thread(self._work)
            self._is_there = True
        self._runs.put(run)

    def close(self) -> None:
        self._runs.put(None)

    def _work(self) -> None:
        _called(HELPER)
        while (run := self._runs.get()) is not None:
            run()


def _called(name: str) -> None:
    """For whoever looks at the threads of this process."""
    with suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write(name)
