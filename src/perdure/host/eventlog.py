"""The event log: one JSON object per line, appended whole, rotated by size and count.

Several hosts write to one log. A record is one `write` on a descriptor opened for appending, so records
never mix; who rotates holds a lock, and the others notice that the file has another name now.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping

import msgspec

SCHEMA_VERSION = 1
MAX_BYTES = 4 * 1024 * 1024
KEPT = 5
_CHECK_EVERY = 64

_encode = msgspec.json.encode


class EventLog:
    """Appends records. A log that cannot be written is counted, and never stops the session."""

    def __init__(self, path: str, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        self.path = path
        self.lost = 0
        self._max = max_bytes
        self._kept = kept
        self._fd = -1
        self._buffer: list[bytes] = []
        self._writes = 0

    def add(
        self, ts: float, session: str, event: str, fields: Mapping[str, str | int | float | bool]
    ) -> None:
        record = {
            "v": SCHEMA_VERSION,
            "ts": round(ts, 6),
            "pid": os.getpid(),
            "session": session,
            "event": event,
        }
        self._buffer.append(_encode({**record, **fields}) + b"\n")

    def flush(self) -> None:
        if not self._buffer:
            return
        data, count = b"".join(self._buffer), len(self._buffer)
        self._buffer.clear()
        try:
            if self._fd < 0 or self._writes % _CHECK_EVERY == 0:
                self._check()
            self._writes += 1
            os.write(self._fd, data)
        except OSError:
            self.lost += count
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _check(self) -> None:
        """Reopen where another writer rotated; rotate where it is time."""
        if self._fd >= 0:
            try:
                same = os.path.samestat(os.stat(self.path), os.fstat(self._fd))
            except FileNotFoundError:
                same = False
            if not same:
                self.close()
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if os.fstat(self._fd).st_size > self._max:
            self._rotate()

    def _rotate(self) -> None:
        lock = os.open(self.path + ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.stat(self.path).st_size > self._max:  # nobody did it while we waited
                for number in range(self._kept - 1, 0, -1):
                    older = f"{self.path}.{number}"
                    if os.path.exists(older):
                        os.replace(older, f"{self.path}.{number + 1}")
                os.replace(self.path, f"{self.path}.1")
                excess = f"{self.path}.{self._kept + 1}"
                if os.path.exists(excess):
                    os.unlink(excess)
        finally:
            os.close(lock)
        self.close()
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
