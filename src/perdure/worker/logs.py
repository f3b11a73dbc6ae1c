"""Where the log of the write engine and the stores goes: to the event log that hosts write, and to standard error.

Modules log by `logging.getLogger(__name__)`. A message names rows, errors and paths beneath the workspace, never a
content.
"""

from __future__ import annotations

import logging
import os

from perdure.storage.event_log import EventLog
from perdure.worker.diagnostics import Diagnostics

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))
_ours = logging.getLogger("perdure")


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
    """Once for each process; another folder takes the place of the one before."""
    path = os.path.join(folder, "events.jsonl")
    for handler in [one for one in _ours.handlers if isinstance(one, EventLogHandler)]:
        if handler.path == path:
            return
        _ours.removeHandler(handler)
        handler.close()
    _ours.addHandler(EventLogHandler(path))


def log_to_diagnostics(diagnostics: Diagnostics) -> None:
    _ours.addHandler(DiagnosticsHandler(diagnostics))


def _level(record: logging.LogRecord) -> str:
    return next((name for level, name in _LEVELS if record.levelno >= level), "debug")
