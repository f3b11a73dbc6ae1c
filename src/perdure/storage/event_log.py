"""The event log: one JSON object per line, appended whole, rotated by size and count.

Several hosts write to one log. A record is one `write` on a descriptor opened for appending, so records
never mix; who rotates holds a lock, and the others notice that the file has another name now.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import msgspec

from perdure.platform import locks

SCHEMA_VERSION = 1
MAX_BYTES = 4 * 1024 * 1024
KEPT = 5
_CHECK_WRITES = 64
_CHECK_S = 1.0

_encode = msgspec.json.encode


def encode_record(record: Mapping[str, object]) -> bytes:
    """One JSON object. Half of a surrogate pair, as a file name or a JSON escape may hold, is written as its escape."""
    try:
        return _encode(record)
    except UnicodeEncodeError:
        return _encode(
            {name: _text(value) if isinstance(value, str) else value for name, value in record.items()}
        )


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


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
        self._checked = 0.0
        self._torn = False

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
        self._buffer.append(encode_record({**record, **fields}) + b"\n")

    def flush(self) -> None:
        if not self._buffer:
            return
        data, count = b"".join(self._buffer), len(self._buffer)
        self._buffer.clear()
        try:
            if self._is_time_to_check():
                self._check()
            self._writes += 1
            # After a write that fell short the next record must not be glued to its remains.
            whole = b"\n" + data if self._torn else data
            self._torn = os.write(self._fd, whole) < len(whole)
            if self._torn:
                self.lost += count
        except OSError:
            self.lost += count
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _is_time_to_check(self) -> bool:
        """Often enough that an idle writer never goes on in a file that was rotated away long ago."""
        now = time.monotonic()
        if self._fd >= 0 and self._writes < _CHECK_WRITES and now - self._checked < _CHECK_S:
            return False
        self._writes, self._checked = 0, now
        return True

    def _check(self) -> None:
        """Reopen where another writer rotated; rotate where it is time."""
        if self._fd < 0 or not self._is_current():
            self._open()
        if os.fstat(self._fd).st_size > self._max:
            self._rotate()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self.close()
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _rotate(self) -> None:
        lock = os.open(self.path + ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            locks.lock(lock)
            if self._is_current():  # no other process did it while we waited
                for number in range(self._kept, 0, -1):
                    newer = f"{self.path}.{number - 1}" if number > 1 else self.path
                    if os.path.exists(newer):
                        os.replace(newer, f"{self.path}.{number}")
            self._open()
        finally:
            os.close(lock)
