"""The host's standard error: one line per event, as text or as JSON, and never waiting for a reader.

Only what the event log may hold is written: names and numbers, no content and no secrets. A line that is not read in
time is left out: many clients start a host and never read its standard error. The same trouble of a server is written
once until the server is ready again: one that cannot start is tried for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final

from perdure.host.event_lines import describe_event
from perdure.platform.polling import WRITABLE, new_poll
from perdure.protocol.eras import LOG_LEVELS
from perdure.storage.event_log import encode_record

PIPE_BYTES: Final = 4096  # what is written whole or not at all
TROUBLE: Final = frozenset({"fault", "circuit", "tools_changed"})
REPEATED: Final = frozenset({"fault", "circuit"})
CHATTER: Final = frozenset({"dispatch", "probe"})

Fields = Mapping[str, str | int | float | bool]


class Console:
    def __init__(self, level: str = "warning", log_format: str = "text", fd: int = 2) -> None:
        self._said = frozenset(LOG_LEVELS[LOG_LEVELS.index(level) :])
        self._is_json = log_format == "json"
        self._fd = fd
        self._poll = new_poll()
        self._poll.register(fd, WRITABLE)
        self._troubles: dict[str, set[tuple[object, ...]]] = {}  # of each server since it was last ready
        self.lost = 0

    def note(self, session: str, event: str, fields: Fields) -> None:
        """An event of the log, if it is important enough."""
        level = "warning" if event in TROUBLE else "debug" if event in CHATTER else "info"
        if not self._is_known(event, fields) and level in self._said:
            self._put(level, event, {"session": session, **fields})

    def _is_known(self, event: str, fields: Fields) -> bool:
        """Whether this trouble of a server was written since the server was last ready."""
        mount = str(fields.get("mount", ""))
        if (event, fields.get("phase")) == ("lifecycle", "serving"):
            self._troubles.pop(mount, None)
        if not mount or event not in REPEATED:
            return False
        trouble = (event, *(fields.get(name) for name in ("code", "detail", "state")))
        known = self._troubles.setdefault(mount, set())
        is_known = trouble in known
        known.add(trouble)
        return is_known

    def say(self, level: str, event: str, fields: Fields) -> None:
        if level in self._said:
            self._put(level, event, fields)

    def announce(self, text: str, event: str, fields: Fields, more: tuple[str, ...] = ()) -> None:
        """What must be known whatever the level is; for people it has words of its own, and `more` lines below."""
        if self._is_json:
            self._put("info", event, fields)
        else:
            for line in (text, *more):
                self._write(line.encode("utf-8", "backslashreplace"))

    def _put(self, level: str, event: str, fields: Fields) -> None:
        if self._is_json:
            said = {"ts": round(time.time(), 3), "level": level, "pid": os.getpid(), "event": event}
            self._write(encode_record({**said, **fields}))
        else:
            urgent = "" if level in ("debug", "info", "notice", "warning") else f"{level}: "
            line = f"perdure: {urgent}{describe_event(event, fields)}"
            self._write(line.encode("utf-8", "backslashreplace"))

    def _write(self, line: bytes) -> None:
        try:
            if len(line) >= PIPE_BYTES or not any(mask & WRITABLE for _, mask in self._poll.poll(0)):
                self.lost += 1
                return
            os.write(self._fd, line.replace(b"\n", b" ") + b"\n")
        except OSError:
            self.lost += 1
