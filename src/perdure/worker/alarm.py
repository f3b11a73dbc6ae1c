"""A timer of the kernel's for one thread that waits: to set it takes a microsecond, and wakes nobody."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import Final, Self

_MONOTONIC: Final = 1
_AT_ONCE_NS: Final = 1


class Alarm:
    """Rings once, `after_s` after it was last set."""

    def __init__(self, fd: int, after_s: float) -> None:
        # Called with the interpreter's lock held: it never blocks.
        self._settime = ctypes.PyDLL(None).timerfd_settime
        self._fd = fd
        self._after = _spec(int(after_s * 1e9))
        self._at_once = _spec(_AT_ONCE_NS)

    @classmethod
    def made(cls, after_s: float) -> Self | None:
        """None where the system has none."""
        if not sys.platform.startswith("linux"):
            return None
        fd = ctypes.PyDLL(None).timerfd_create(_MONOTONIC, os.O_CLOEXEC)
        return cls(fd, after_s) if fd >= 0 else None

    def set(self) -> None:
        self._settime(self._fd, 0, self._after, None)

    def ring(self) -> None:
        """Now."""
        self._settime(self._fd, 0, self._at_once, None)

    def wait(self) -> None:
        os.read(self._fd, 8)

    def close(self) -> None:
        os.close(self._fd)


def _spec(nanoseconds: int) -> bytes:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return struct.pack("@llll", 0, 0, seconds, rest)
