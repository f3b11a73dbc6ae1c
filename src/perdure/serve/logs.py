"""Log records of libraries, on the console of the host, which never waits for a reader of standard error."""

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
        fields = {"logger": record.name, "message": record.getMessage()[:MOST_TEXT]}
        if record.exc_info is not None and record.exc_info[0] is not None:
            # The message of an exception may contain a secret; its type and place do not.
            frames = traceback.extract_tb(record.exc_info[2])[-MOST_FRAMES:]
            fields["error"] = record.exc_info[0].__name__
            fields["place"] = " > ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
        self._console.say(LEVELS.get(record.levelname, "warning"), "log", fields)


def to_console(console: Console) -> None:
    logging.basicConfig(handlers=[ToConsole(console)], level=logging.WARNING, force=True)
