"""A thread that has what others need, and says when it will not use it for a while.

Whoever reads a call may run it while it still has the turn at reading, so that nobody has to be woken. What waits for a
disk or works for long says so, and the turn goes to another thread.

    relief.now()         the rest may take long
    relief.if_asked()    a wait comes that is not long: only where somebody is waiting already
"""

from __future__ import annotations

import threading
from typing import Protocol


class Held(Protocol):
    """What a thread may give away, once."""

    def give(self) -> None: ...

    def is_asked_for(self) -> bool: ...


class _Here(threading.local):
    held: Held | None = None


_here = _Here()


def hold(held: Held | None) -> None:
    """This thread has it from now on, or no longer."""
    _here.held = held


def now() -> None:
    if (held := _here.held) is not None:
        _here.held = None
        held.give()


def if_asked() -> None:
    if (held := _here.held) is not None and held.is_asked_for():
        now()
