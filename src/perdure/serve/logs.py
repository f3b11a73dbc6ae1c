"""What libraries log, on the same console as everything else: they must not wait for a reader either."""

from __future__ import annotations

import logging
import traceback
from typing import Final

from perdure.host.console import Console

LEVELS: Final = {
    "DEBUG": "debug",
    "INFO": "info",
    "WARNING": "warning",
    "ERROR": "error",
    "CRITICAL": "critical",
}
MOST_FRAMES: Final = 6
MOST_TEXT: Final = 500


class ToConsole(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        said = {"logger": record.name, "message": record.getMessage()[:MOST_TEXT]}
        if record.exc_info is not None and record.exc_info[0] is not None:
            # The text of an exception may hold what must not be logged; its kind and place do not.
            frames = traceback.extract_tb(record.exc_info[2])[-MOST_FRAMES:]
            said["error"] = record.exc_info[0].__name__
            said["place"] = " > ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
        self._console.say(LEVELS.get(record.levelname, "warning"), "log", said)


def to_console(console: Console) -> None:
    logging.basicConfig(handlers=[ToConsole(console)], level=logging.WARNING, force=True)
