"""What the worker says on stderr: one line per event, without content, values or host paths."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Final

import msgspec

from perdure.protocol.eras import LOG_LEVELS

DEFAULT_LEVEL: Final = "warning"


class Diagnostics:
    def __init__(self, level: str = DEFAULT_LEVEL, log_format: str = "text") -> None:
        self._threshold = LOG_LEVELS.index(level)
        self._is_json = log_format == "json"

    def say(self, level: str, message: str) -> None:
        if LOG_LEVELS.index(level) >= self._threshold:
            # One write, so that lines of several threads stay whole.
            line = self._line(level, message) + b"\n"
            try:
                os.write(2, line)
            except OSError:
                pass  # stderr is closed: a call must not fail because of that

    def _line(self, level: str, message: str) -> bytes:
        if not self._is_json:
            return f"perdure worker: {level}: {message}".encode("utf-8", "backslashreplace")
        said = {"ts": round(time.time(), 3), "level": level, "pid": os.getpid(), "event": "worker"}
        return msgspec.json.encode({**said, "message": message.encode("utf-8", "replace").decode()})

    def unexpected(self, what: str, error: BaseException) -> str:
        """Record an unexpected exception; the id returned stands in the client's envelope too."""
        incident = os.urandom(4).hex()
        self.say("error", f"{type(error).__name__} in {what} at {_place(error.__traceback__)} ({incident})")
        return incident


def _place(trace: TracebackType | None) -> str:
    """Module and line of each frame. Messages and file names may hold what must not be logged."""
    frames: list[str] = []
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames[-6:]) or "?"
