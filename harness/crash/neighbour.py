"""A second worker on the same workspace, whom nobody kills: it goes on where the other died in the middle."""

from __future__ import annotations

import time
from typing import Final

from harness.crash.bare import Bare
from harness.crash.calls import Call
from harness.crash.place import Place

KINDS: Final = ("append", "keyed", "edit", "replace", "transaction", "create")
"""What two sessions may do to the same files without being told that somebody else was there."""


PAUSE_S: Final = 0.03


class Neighbour:
    """One call at a time, with pauses: it shall not keep the workspace's lock to itself."""

    def __init__(self, place: Place) -> None:
        self.open: dict[int, Call] = {}
        self._sent_at = time.monotonic()
        self._worker = Bare(place, "")

    @property
    def is_idle(self) -> bool:
        return not self.open and time.monotonic() - self._sent_at >= PAUSE_S

    def send(self, call: Call) -> None:
        self.open[call.number] = call
        self._sent_at = time.monotonic()
        self._worker.call(call, "neighbour")

    def heard(self) -> list[Call]:
        """Calls that it answered since."""
        found = [frame for frame in self._worker.wire.poll(0) if isinstance(frame.get("id"), int)]
        for frame in found:
            self.open[frame["id"]].take(frame)
        return [self.open.pop(frame["id"]) for frame in found]

    def leave(self) -> int | None:
        code = self._worker.leave()
        self._worker.close()
        return code
