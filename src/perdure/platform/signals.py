"""Signals: requests that one process makes of another, or the system of a process.

| number | asks a process to |
|---|---|
| `TERMINATE`, `INTERRUPT` | end in good order |
| `KILL` | end at once; no process can refuse |
| `RELOAD` | start its servers anew; also sent when a terminal is closed |
| `UPGRADE` | replace itself by what is installed now |
| `CHILD_ENDED` | look which child ended |
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

TERMINATE: Final[int] = signal.SIGTERM
INTERRUPT: Final[int] = signal.SIGINT
KILL: Final[int] = signal.SIGKILL
RELOAD: Final[int] = signal.SIGHUP
UPGRADE: Final[int] = signal.SIGUSR2
CHILD_ENDED: Final[int] = signal.SIGCHLD


class SignalPipe:
    """Signals as bytes on a pipe, so that one poll waits for them too."""

    NUMBERS = (CHILD_ENDED, TERMINATE, INTERRUPT, RELOAD, UPGRADE)

    def __init__(self) -> None:
        self.fd, self._writing = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._writing, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in self.NUMBERS:
            signal.signal(number, lambda *_: None)

    def take(self) -> set[int]:
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()

    def hold(self) -> None:
        """Let signals wait until `release`, also across a replacement of this process. Those taken in are sent again."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self.NUMBERS)
        for number in self.take():
            os.kill(os.getpid(), number)

    def release(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.NUMBERS)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._writing)


def send(pid: int, number: int) -> None:
    """Raises OSError where there is no such process, or it is another user's."""
    os.kill(pid, number)


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def ignore(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def handle(number: int, handler: Callable[[], None]) -> None:
    signal.signal(number, lambda *_: handler())


def handle_in_loop(
    loop: AbstractEventLoop, number: int, handler: Callable[..., Any], *arguments: Any
) -> None:
    """Call the handler in an event loop, between two of its callbacks."""
    loop.add_signal_handler(number, handler, *arguments)


def stop_handling_in_loop(loop: AbstractEventLoop, number: int) -> None:
    loop.remove_signal_handler(number)


def end_after(seconds: float) -> None:
    """The system ends this process then: no thread and no full pipe can prevent it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
