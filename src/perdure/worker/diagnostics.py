"""What the worker says on stderr: one line per event, without content, values or host paths."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final

from perdure.model.eras import LOG_LEVELS

DEFAULT_LEVEL: Final = "warning"


class Diagnostics:
    def __init__(self, level: str = DEFAULT_LEVEL) -> None:
        self._threshold = LOG_LEVELS.index(level)

    def say(self, level: str, message: str) -> None:
        if LOG_LEVELS.index(level) >= self._threshold:
            # One write, so that lines of several threads stay whole.
            line = f"perdure worker: {level}: {message}\n".encode("utf-8", "backslashreplace")
            try:
                os.write(2, line)
            except OSError:
                pass  # stderr is gone: a call must not fail because nobody reads about it

    def unexpected(self, what: str, error: BaseException) -> str:
        """Record an exception nobody foresaw; the id returned stands in the client's envelope too."""
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
