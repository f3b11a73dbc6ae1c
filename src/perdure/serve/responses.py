"""The response to a request: one JSON body, or a stream of server-sent events.

A response becomes a stream when a frame comes before the answer, or when the answer takes long. In the handshake era
a client may leave a stream and resume it; in 2026-07-28 a client that closes the connection has cancelled.
"""

from __future__ import annotations

import asyncio
from math import ceil
from typing import Final, cast

from msgspec import Raw

from perdure.http.server import Headers, Request
from perdure.protocol.faults import TOO_MANY_PENDING
from perdure.protocol.frames import (
    INVALID_REQUEST,
    RequestId,
    Response,
    decode,
    decode_id,
    encode_error,
    members,
)
from perdure.serve import validation
from perdure.serve.exchange import STANDING, Exchange, Stream
from perdure.serve.http_session import HttpSession

DEFER_S: Final = 0.2
STREAM_S: Final = 0.8
PING_S: Final = 15.0
FRAMES_PER_TURN: Final = 32
PRIMED_SINCE: Final = "2025-11-25"  # older clients do not expect an event without data
JSON: Final = (b"content-type", b"application/json")
STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class ErrorResponse(Exception):
    """A response with an error status. Its body is a JSON-RPC error."""

    def __init__(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or []


def error_response(status: int, message: str, code: int = INVALID_REQUEST) -> ErrorResponse:
    return ErrorResponse(status, encode_error(None, code, message))


def retry_later(status: int, message: str, reason: str, wait: float = 1.0) -> ErrorResponse:
    """A limit is reached: nothing has happened, and the client may send the request again after `wait` seconds."""
    data = {"class": "resource", "code": reason, "outcome": "not_started", "retry": "later"}
    body = encode_error(None, TOO_MANY_PENDING, message, data)
    return ErrorResponse(status, body, [(b"retry-after", str(max(1, ceil(wait))).encode())])


async def respond(request: Request, status: int, body: bytes, headers: Headers | None = None) -> None:
    """A whole response; its body is JSON unless the headers say otherwise."""
    named = list(headers or ())
    if body and not any(name == JSON[0] for name, _ in named):
        named.append(JSON)
    await request.respond(status, body, named)


async def answer(session: HttpSession, exchange: Exchange, request: Request, headers: Headers) -> bool:
    """Send the frames of a request up to its answer. True where the client left before."""
    exchange.is_left = lambda: request.is_lost
    await exchange.wait(DEFER_S)
    if exchange.is_answered and exchange.is_left():
        session.give_up(exchange)
        return True
    if await _send_if_alone(session, exchange, request, headers):
        return False
    return await _ResponseWriter(session, exchange, request, headers).serve()


async def resume_stream(
    session: HttpSession, exchange: Exchange, missed: list[bytes], request: Request, headers: Headers
) -> None:
    """Continue a stream where its client left it."""
    await _ResponseWriter(session, exchange, request, headers).serve(missed)


async def serve_standing_stream(
    session: HttpSession, missed: list[bytes], request: Request, headers: Headers
) -> None:
    """The client's GET stream: frames that belong to none of its requests."""
    exchange = session.standing_exchange()
    session.listen(exchange)
    try:
        await resume_stream(session, exchange, missed, request, headers)
    finally:
        session.stop_listening(exchange)


async def _send_if_alone(
    session: HttpSession, exchange: Exchange, request: Request, headers: Headers
) -> bool:
    """Send the answer as one body if no other frame came before it. An error sets the status."""
    if not exchange.is_answered or len(exchange.frames) != 1:
        return False
    frame = exchange.frames[0]
    status = 200 if exchange.is_resumable else _status(frame)
    # Registered first: the connection may end while the response is being written.
    request.when_delivered(session.sent(exchange, frame))
    await respond(request, status, frame, headers)
    return True


class _ResponseWriter:
    """Writes an exchange to one response. A client that resumes on another connection takes the exchange over."""

    def __init__(self, session: HttpSession, exchange: Exchange, request: Request, headers: Headers) -> None:
        self._session = session
        self._exchange = exchange
        self._request = request
        self._headers = headers
        self._has_begun = False
        self._number = exchange.read()

    async def serve(self, missed: list[bytes] | None = None) -> bool:
        """True where the client left before the end. `missed` are the events that it asks for again."""
        self._request.lost.add_done_callback(self._wake)
        try:
            if missed is not None:
                await self._begin()
                for event in missed:
                    await self._request.write(event)
            return await self._serve()
        finally:
            self._request.lost.remove_done_callback(self._wake)

    def _wake(self, _: object) -> None:
        self._exchange.wake()

    async def _serve(self) -> bool:
        """Until the first frame it is open whether the response is a body or a stream."""
        exchange = self._exchange
        while True:
            if not self._request.is_lost:
                await exchange.wait(self._timeout())
            if exchange.readers != self._number:
                await self._request.end()
                return False
            if self._request.is_lost:
                self._session.give_up(exchange)
                return True
            if not self._has_begun and await _send_if_alone(
                self._session, exchange, self._request, self._headers
            ):
                return False
            await self._begin()
            frame = b""
            for number in range(len(exchange.frames)):
                frame = exchange.frames.popleft()
                await self._request.write(self._event(frame))
                if number % FRAMES_PER_TURN == FRAMES_PER_TURN - 1:
                    await asyncio.sleep(0)  # writing need not wait, and other requests have work to do
            if exchange.frames:
                continue
            if exchange.is_answered:
                self._request.when_delivered(self._session.sent(exchange, frame))
            if exchange.is_answered or exchange.is_closed:
                await self._request.end()
                return False

    def _timeout(self) -> float:
        is_primed = self._exchange.is_resumable and self._session.version >= PRIMED_SINCE
        return STREAM_S if is_primed and not self._has_begun else PING_S

    async def _begin(self) -> None:
        if self._has_begun:
            if not (self._exchange.frames or self._exchange.is_answered or self._exchange.is_closed):
                await self._request.write(b": still there\n\n")
            return
        self._has_begun = True
        await self._request.start(200, [*STREAM, *self._headers])
        if self._exchange.is_resumable and self._exchange.stream is None:
            self._exchange.stream = Stream(self._exchange.id)
        if self._exchange.stream is not None and self._session.version >= PRIMED_SINCE:
            await self._request.write(self._exchange.stream.prime())
        else:
            await self._request.write(b": open\n\n")

    def _event(self, frame: bytes) -> bytes:
        if self._exchange.stream is not None:
            return self._exchange.stream.event(frame)
        return b"event: message\ndata: " + frame + b"\n\n"


def _status(frame: bytes) -> int:
    """200 for a result; for an error, by the table of 2026-07-28."""
    if b'"error":' not in frame[:600]:
        return 200
    message = decode(frame)
    if not isinstance(message, Response) or message.error is None:
        return 200
    code = members(message.error).get("code")
    return validation.STATUS.get(cast("int", decode_id(code)) if code is not None else 0, 200)


# --- resuming a stream ----------------------------------------------------------------------------------------


def find_stream(session: HttpSession, event_id: str) -> tuple[Exchange, list[bytes]] | None:
    """The exchange that a client resumes, and the events that it has missed; None where it is not known."""
    parsed = _parse(event_id)
    if parsed is None:
        return None
    name, number = parsed
    running = (
        exchange
        for exchange in session.exchanges.values()
        if exchange.stream is not None and exchange.stream.name == name
    )
    exchange = session.left.take(name) or next(running, None)
    if exchange is None or exchange.stream is None:
        return _recover_exchange(session, _request_of(name))
    missed = exchange.stream.after(number)
    if missed is None:
        return None
    if not exchange.is_answered and exchange.id is not None:
        session.exchanges[exchange.id] = exchange
    return exchange, missed


def _recover_exchange(
    session: HttpSession, identity: RequestId | None
) -> tuple[Exchange, list[bytes]] | None:
    """After a restart the stream is gone, but its answer, or its running call, may be known."""
    if identity is None or identity in session.exchanges:
        return None
    exchange = Exchange(identity, None, can_stream=True, is_resumable=True)
    if (answer := session.deliveries.undelivered.get(identity)) is not None:
        exchange.answer(answer)
    elif identity in session.kernel.state.ids:
        session.exchanges[identity] = exchange
    else:
        return None
    return exchange, []


def missed_standing(session: HttpSession, event_id: str) -> list[bytes] | None:
    """The events of the standing stream after this one; None for an event of another stream."""
    parsed = _parse(event_id)
    if parsed is None or not parsed[0].startswith(STANDING):
        return None
    is_same = parsed[0] == session.standing_stream.name
    return (session.standing_stream.after(parsed[1]) if is_same else None) or []


def _parse(event_id: str) -> tuple[str, int] | None:
    """The name of a stream, and the number of an event."""
    name, _, number = event_id.rpartition(".")
    return (name, int(number)) if name and number.isascii() and number.isdigit() else None


def _request_of(name: str) -> RequestId | None:
    """The request that a stream of this name answers."""
    try:
        return decode_id(Raw(bytes.fromhex(name.partition("-")[0])))
    except ValueError:
        return None
