"""Streams that a client may leave and take up again with `Last-Event-ID`, in the handshake era.

    id: STREAM.NUMBER      the stream's name holds the id of the request that it answers

What was sent is remembered within a bound, and sent again from where the client left. After a restart the stream is
gone, but by its name the answer is still found.
"""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from perdure.protocol.frames import RequestId, decode_id
from perdure.serve.exchange import Exchange

if TYPE_CHECKING:
    from perdure.serve.http_session import HttpSession

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


def resume(session: HttpSession, event_id: str) -> tuple[Exchange, list[bytes]] | None:
    """A stream that its client comes back to, and what it has missed; None where nothing is known of it."""
    parsed = _parse(event_id)
    if parsed is None:
        return None
    name, number = parsed
    running = (
        one for one in session.exchanges.values() if one.stream is not None and one.stream.name == name
    )
    found = session.left.take(name) or next(running, None)
    if found is None or found.stream is None:
        return _found_again(session, _request_of(name))
    missed = found.stream.after(number)
    if missed is None:
        return None
    if not found.is_answered and found.id is not None:
        session.exchanges[found.id] = found
    return found, missed


def _found_again(session: HttpSession, identity: RequestId | None) -> tuple[Exchange, list[bytes]] | None:
    """After a restart: the stream is gone, but what it was waiting for may be known."""
    if identity is None or identity in session.exchanges:
        return None
    made = Exchange(identity, None, can_stream=True, is_resumable=True)
    if (known := session.deliveries.undelivered.get(identity)) is not None:
        made.answer(known)
    elif identity in session.kernel.state.ids:
        session.exchanges[identity] = made
    else:
        return None
    return made, []


def missed_standing(session: HttpSession, event_id: str) -> list[bytes] | None:
    """What the standing stream said after an event; None where the event is none of such a stream."""
    parsed = _parse(event_id)
    if parsed is None or not parsed[0].startswith(STANDING):
        return None
    is_same = parsed[0] == session.standing_stream.name
    return (session.standing_stream.after(parsed[1]) if is_same else None) or []


def _parse(event_id: str) -> tuple[str, int] | None:
    """A stream's name and the number of one of its events."""
    name, _, number = event_id.rpartition(".")
    return (name, int(number)) if name and number.isascii() and number.isdigit() else None


def _request_of(name: str) -> RequestId | None:
    """The request that a stream with this name answers."""
    try:
        return decode_id(Raw(bytes.fromhex(name.partition("-")[0])))
    except ValueError:
        return None
