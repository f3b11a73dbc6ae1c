"""Streams that a client may leave and take up again with `Last-Event-ID`, in the handshake era.

    id: STREAM.NUMBER      the stream's name holds the id of the request that it answers

What was sent is remembered within a bound, and sent again from where the client left. After a restart the stream is
gone, but by its name the answer is still found.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Final

import msgspec
from msgspec import Raw

from perdure.model.frames import RequestId, decode_id
from perdure.serve.exchange import Exchange

RETRY_MS: Final = 1000
MOST_BYTES: Final = 128 * 1024
MOST_LEFT: Final = 32
PRIMED_SINCE: Final = "2025-11-25"  # older clients do not expect an event without data
STANDING: Final = "standing"


class Stream:
    """The events of one stream, numbered; the latest of them are kept."""

    def __init__(self, identity: RequestId | None) -> None:
        named = msgspec.json.encode(identity).hex() if identity is not None else STANDING
        self.name = f"{named}-{os.urandom(6).hex()}"
        self.number = 0
        self._sent: deque[bytes] = deque()
        self._size = 0

    def prime(self) -> bytes:
        """The first event: nothing but a place to come back to."""
        return f"id: {self.name}.{self.number}\nretry: {RETRY_MS}\ndata: \n\n".encode()

    def event(self, frame: bytes) -> bytes:
        self.number += 1
        made = f"id: {self.name}.{self.number}\nevent: message\ndata: ".encode() + frame + b"\n\n"
        self._sent.append(made)
        self._size += len(made)
        while self._size > MOST_BYTES:
            self._size -= len(self._sent.popleft())
        return made

    def after(self, number: int) -> list[bytes] | None:
        """What was sent after an event; None where some of it is no longer known."""
        missing = self.number - number
        if not 0 <= missing <= len(self._sent):
            return None
        return list(self._sent)[len(self._sent) - missing :]


def parse(event_id: str) -> tuple[str, int] | None:
    """A stream's name and the number of one of its events."""
    name, _, number = event_id.rpartition(".")
    return (name, int(number)) if name and number.isascii() and number.isdigit() else None


def request_of(name: str) -> RequestId | None:
    """The request that a stream with this name answers."""
    try:
        return decode_id(Raw(bytes.fromhex(name.partition("-")[0])))
    except ValueError:
        return None


class LeftStreams:
    """Exchanges whose client went away, and the last ones that ended: it may not have seen all of them."""

    def __init__(self) -> None:
        self._left: dict[str, Exchange] = {}

    def add(self, exchange: Exchange) -> None:
        assert exchange.stream is not None
        self._left[exchange.stream.name] = exchange
        while len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    def take(self, name: str) -> Exchange | None:
        return self._left.pop(name, None)

    @property
    def waiting(self) -> list[Exchange]:
        """Those without an answer so far."""
        return [one for one in self._left.values() if not one.is_answered]
