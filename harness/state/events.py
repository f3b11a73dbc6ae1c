"""What clients asked and were told, with the times between which it must have happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

Outcome = Literal["done", "refused", "unknown"]
"""Answered by the store; certainly without effect; nobody can say."""

FOREVER = 2**63 - 1


class Event(msgspec.Struct, frozen=True):
    """`id` is unique and part of every value that the call would write."""

    id: str
    tool: str
    arguments: dict[str, Any]
    began: int
    ended: int
    outcome: Outcome
    answer: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.answer.get("status")) if self.outcome == "done" else self.outcome


class Recorder:
    """One clock for all clients: they are threads of one process, whatever they talk to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []

    def call(
        self,
        identity: str,
        tool: str,
        arguments: dict[str, Any],
        use: Callable[[str, dict[str, Any]], tuple[Outcome, dict[str, Any]]],
    ) -> Event:
        began = time.monotonic_ns()
        outcome, answer = use(tool, arguments)
        ended = time.monotonic_ns() if outcome != "unknown" else FOREVER
        event = Event(identity, tool, arguments, began, ended, outcome, answer)
        with self._lock:
            self._events.append(event)
        return event

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return list(self._events)
