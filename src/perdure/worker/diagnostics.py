"""The log of a worker: lines on stderr, and records in the event log of the hosts.

Modules log by `logging.getLogger(__name__)`. A message names rows, errors and paths beneath the workspace, never a
content, a value or another path of the machine.
"""

from __future__ import annotations

import logging
import os
import time
from types import TracebackType
from typing import Final

import msgspec

from perdure.protocol.eras import LOG_LEVELS
from perdure.storage.event_log import EventLog

DEFAULT_LEVEL: Final = "warning"
_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))
_logger = logging.getLogger("perdure")


class Diagnostics:
    """Lines on stderr, as text or as JSON."""

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
        record = {"ts": round(time.time(), 3), "level": level, "pid": os.getpid(), "event": "worker"}
        return msgspec.json.encode({**record, "message": message.encode("utf-8", "replace").decode()})

    def unexpected(self, what: str, error: BaseException) -> str:
        """Log an unexpected exception. Returns the id that the client's envelope contains as well."""
        incident = os.urandom(4).hex()
        self.say("error", f"{type(error).__name__} in {what} at {_place(error.__traceback__)} ({incident})")
        return incident


def _place(trace: TracebackType | None) -> str:
    """Module and line of each frame, without messages and file names, which may hold secrets."""
    frames: list[str] = []
    while trace is not None:
        frames.append(f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(frames[-6:]) or "?"


class EventLogHandler(logging.Handler):
    """`emit` is called under the handler's own lock."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.INFO)
        self.path = path
        self._log = EventLog(path)

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"level": _level(record), "module": record.name, "message": record.getMessage()}
        self._log.add(record.created, "", "log", fields)
        self._log.flush()

    def close(self) -> None:
        self._log.close()
        super().close()


class DiagnosticsHandler(logging.Handler):
    def __init__(self, diagnostics: Diagnostics) -> None:
        super().__init__(logging.INFO)
        self._diagnostics = diagnostics

    def emit(self, record: logging.LogRecord) -> None:
        self._diagnostics.say(_level(record), record.getMessage())


def log_to_events(folder: str) -> None:
    """Once per process. Another folder replaces the one before."""
    path = os.path.join(folder, "events.jsonl")
    for handler in [handler for handler in _logger.handlers if isinstance(handler, EventLogHandler)]:
        if handler.path == path:
            return
        _logger.removeHandler(handler)
        handler.close()
    _logger.addHandler(EventLogHandler(path))


def log_to_diagnostics(diagnostics: Diagnostics) -> None:
    _logger.addHandler(DiagnosticsHandler(diagnostics))


def _level(record: logging.LogRecord) -> str:
    return next((name for level, name in _LEVELS if record.levelno >= level), "debug")
