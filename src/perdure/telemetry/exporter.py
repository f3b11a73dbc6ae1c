"""Telemetry on its way out: records go down a pipe to a process of their own, which sends them on.

The host imports nothing for it and waits for nobody. Where the pipe is full, or that process is gone, records are
left out and counted; it is started again, but not at once.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

import msgspec

from perdure.platform.children import exit_status, spawn
from perdure.platform.descriptors import set_blocking
from perdure.platform.polling import WRITABLE, wait

MOST_WAITING: Final = 1024 * 1024
AGAIN_S: Final = 10.0
LAST_S: Final = 0.5


class Exporter:
    """`command` is started with a pipe as its standard input and what it must know in its environment."""

    def __init__(self, command: tuple[str, ...], where: str) -> None:
        self._command = command
        self._where = where
        self._fd = -1
        self._pid = 0
        self._ended: list[int] = []  # processes whose pipe is closed and that were not reaped yet
        self._started_at = float("-inf")
        self._waiting = bytearray()
        self.lost = 0

    def tell(self, record: dict[str, Any]) -> None:
        line = msgspec.json.encode(record) + b"\n"
        if len(self._waiting) + len(line) > MOST_WAITING:
            self.lost += 1
            return
        self._waiting += line
        self.flush()

    def flush(self) -> None:
        if not self._waiting or not self._is_running():
            return
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._forget()

    def close(self) -> None:
        """A moment for what is waiting; at the end of its input the process sends what it has and ends."""
        until = time.monotonic() + LAST_S
        while self._waiting and self._fd >= 0 and (left := until - time.monotonic()) > 0:
            wait(self._fd, WRITABLE, left)
            self.flush()
        self._forget()

    def _is_running(self) -> bool:
        if self._fd >= 0:
            return True
        self._ended = [pid for pid in self._ended if exit_status(pid) is None]
        now = time.monotonic()
        if now - self._started_at < AGAIN_S:
            return False
        self._started_at = now
        ours = theirs = -1
        try:
            theirs, ours = os.pipe()
            env = {**os.environ, "PERDURE_OTEL": self._where}
            self._pid = spawn(self._command, env, stdin=theirs, stdout=2, own_group=False)
        except OSError:
            if ours >= 0:
                os.close(ours)
            return False
        finally:
            if theirs >= 0:
                os.close(theirs)
        set_blocking(ours, False)
        self._fd = ours
        return True

    def _forget(self) -> None:
        if self._waiting:
            self.lost += self._waiting.count(b"\n")
            self._waiting.clear()  # the rest of a line would be the beginning of the next
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._pid:
            self._ended.append(self._pid)
            self._pid = 0
        self._ended = [pid for pid in self._ended if exit_status(pid) is None]
