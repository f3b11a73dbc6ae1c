"""JSON-RPC lines over a pair of pipes, without threads: a session that forks must have none."""

from __future__ import annotations

import os
import select
from typing import Any, Final

import msgspec

Frame = dict[str, Any]

_PIECE: Final = 1 << 18


class Wire:
    """The client's end. `ended` when the other side closed its own."""

    def __init__(self, reading: int, writing: int) -> None:
        self.ended = False
        self._reading = reading
        self._writing = writing
        self._rest = b""

    def send(self, frame: Frame) -> None:
        """Write it whole. What nobody reads any more is known from the end of the output."""
        rest = memoryview(msgspec.json.encode(frame) + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._writing, rest) :]
        except BrokenPipeError:
            pass

    def request(self, identity: int | str, method: str, params: Frame) -> None:
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})

    def poll(self, seconds: float) -> list[Frame]:
        """What arrived, after waiting for it at most so long."""
        readable, _, _ = select.select([self._reading], [], [], seconds) if not self.ended else ([], [], [])
        if not readable:
            return []
        data = os.read(self._reading, _PIECE)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [msgspec.json.decode(line, type=Frame) for line in lines]

    def close_input(self) -> None:
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def close(self) -> None:
        self.close_input()
        os.close(self._reading)
