"""What the fake server writes down for its tests and its successors: append-only files of lines."""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn


def append(path: str | None, line: str) -> None:
    """Add one line with one O_APPEND write, so that a kill leaves all of it or none."""
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (line + "\n").encode())
    finally:
        os.close(descriptor)


def lines(path: str | None) -> list[str]:
    if path is None or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as ledger:
        return ledger.read().splitlines()


def kill_self() -> NoReturn:
    """Die as `kill -9` would have it: nothing is flushed, nothing is said."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(60)


class Ledgers:
    """Effects performed, calls received, and the faults already committed by earlier generations."""

    def __init__(self, effects: str | None, dispatches: str | None, state: str | None) -> None:
        self._effects = effects
        self._dispatches = dispatches
        self._state = state

    def dispatched(self, tool: str, key: str) -> None:
        append(self._dispatches, f"{tool} {key}")

    def performed(self, tool: str, key: str) -> None:
        append(self._effects, f"{tool} {key} pid={os.getpid()}")

    def cancelled(self, key: str) -> None:
        append(self._effects, f"cancelled {key}")

    @property
    def knows_effects(self) -> bool:
        return self._effects is not None

    def find(self, key: str, tool: str | None = None) -> tuple[str, int] | None:
        """The tool and process that first performed the effect `key`."""
        for line in lines(self._effects):
            head, separator, pid = line.rpartition(" pid=")
            name, _, found = head.partition(" ")
            if separator and found == key and tool in (None, name):
                return name, int(pid)
        return None

    def claim(self, fault: str, times: int) -> bool:
        """Whether the fault may happen once more; if so it is counted now, before it happens."""
        if lines(self._state).count(fault) >= times:
            return False
        append(self._state, fault)
        return True
