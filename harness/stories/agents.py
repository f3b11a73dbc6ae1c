"""Agents that count what they do: one with Perdure, one with a plain file server, each on a folder of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.testing.raw_client import Ended, RawClient

CALL_S: Final = 60
COUNTED: Final = 64  # a shorter text costs nothing to send again
PLAIN: Final = (sys.executable, "-P", "-m", "harness.stories.plain_server")


class Outcome(msgspec.Struct, frozen=True):
    """How a story ended. `seconds` are from the failure to the end; `is_good` is what is on disk, not what was said."""

    is_good: bool
    end: str
    calls: int
    resent: int
    seconds: float


class Agent:
    """What both have in common: calls, and what of them was sent before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.calls = 0
        self.resent = 0
        self._sent: list[str] = []
        self._failed: float | None = None
        self.client = self.start()

    def start(self) -> RawClient:
        raise NotImplementedError

    def close(self) -> None:
        self.client.kill()

    def failure(self) -> None:
        """From here on it counts how long it takes."""
        self._failed = time.monotonic()

    def outcome(self, is_good: bool, end: str) -> Outcome:
        seconds = time.monotonic() - self._failed if self._failed is not None else 0.0
        return Outcome(is_good, end, self.calls, self.resent, seconds)

    def text(self, path: str) -> str:
        try:
            return (self.folder / path).read_text()
        except FileNotFoundError:
            return ""

    def count(self, arguments: dict[str, Any]) -> None:
        self.calls += 1
        for text in _texts(arguments):
            self.resent += max((_again(before, text) for before in self._sent), default=0)
            self._sent.append(text)


class WithPerdure(Agent):
    """Over `perdure run`. `kill_at` names a fault point at which its worker is killed, the first time it comes there."""

    def __init__(self, folder: Path, kill_at: str | None = None) -> None:
        self._kill_at = kill_at
        self._mark = folder.parent / f"{folder.name}.paused"
        super().__init__(folder)
        if kill_at is not None:
            threading.Thread(target=self._kill_once, daemon=True).start()

    def start(self) -> RawClient:
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.folder)]
        environ = {**os.environ, "PERDURE_HOME": str(self.folder.parent / f"{self.folder.name}.home")}
        if self._kill_at is not None:
            environ["PERDURE_FAULT"] = f"{self._kill_at}=pause:{self._mark}"
        client = RawClient([*command, "--render", "json", "--detail", "full"], env=environ)
        client.initialize()
        return client

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self.count(arguments)
        response = self.client.call(tool, arguments, timeout=CALL_S)
        found: dict[str, Any] = response["result"]["structuredContent"]
        return found

    def _kill_once(self) -> None:
        """Whoever waits at the point is killed; those after it are let through."""
        is_killed = False
        while not self.client.ended:
            try:
                pid = int(self._mark.read_text() or 0)
            except FileNotFoundError:
                pid = 0
            if pid:
                if not is_killed:
                    self.failure()
                    os.kill(pid, signal.SIGKILL)
                    is_killed = True
                self._mark.unlink()
            time.sleep(0.005)


class Plain(Agent):
    """Over a plain file server. When it dies, the session is lost, and the agent opens another.

    Ours dies after so many bytes; one of others cannot be told to, and is killed with this call in flight.
    """

    def __init__(
        self, folder: Path, command: Sequence[str] = PLAIN, die_after: int | None = None, die_in_call: int = 1
    ) -> None:
        self._command = [*command, str(folder)]
        self._die_after = die_after if tuple(command) == PLAIN else None
        self._die_in_call = die_in_call if die_after is not None and self._die_after is None else 0
        super().__init__(folder)

    def start(self) -> RawClient:
        more = ["--die-after", str(self._die_after)] if self._die_after is not None else []
        self._die_after = None
        client = RawClient([*self._command, *more], env=os.environ)
        client.initialize(timeout=CALL_S)
        return client

    def use(self, tool: str, **arguments: Any) -> str | None:
        """The text of the answer; None where the server died instead of answering."""
        self.count(arguments)
        arguments["path"] = str(self.folder / arguments["path"])
        identity = self.client.start_call(tool, arguments)
        try:
            if self.calls == self._die_in_call:
                self.client.process.kill()
            response = self.client.wait(identity, CALL_S)
        except (Ended, OSError):
            self.failure()
            self.client.kill()
            self.client = self.start()
            return None
        text: str = response["result"]["content"][0]["text"]
        return text


def _again(before: str, text: str) -> int:
    """How much of a text was sent with an earlier one: all of it, or what it begins and ends with alike."""
    if text in before:
        return len(text)
    start = _alike(before, text)
    end = _alike(reversed(before[start:]), reversed(text[start:]))
    return start + end if start + end >= COUNTED else 0


def _alike(one: Iterable[str], other: Iterable[str]) -> int:
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value] if len(value) >= COUNTED else []
        case dict():
            return [text for one in value.values() for text in _texts(one)]
        case list():
            return [text for one in value for text in _texts(one)]
        case _:
            return []
