"""Answering over HTTP: as one JSON body where that is all, else as a stream of server-sent events.

A stream of the handshake era numbers its events, so that its client can leave it and come back; 2026 knows no such
thing, and a client that goes away has cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from perdure.http.server import Headers, Request
from perdure.protocol.frames import Response, decode, decode_id, members
from perdure.serve import ladder
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.resumption import PRIMED_SINCE, Stream

DEFER_S: Final = 0.2
STREAM_S: Final = 0.8
PING_S: Final = 15.0
FRAMES_PER_TURN: Final = 32
JSON: Final = (b"content-type", b"application/json")
STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


async def respond(request: Request, status: int, body: bytes, headers: Headers | None = None) -> None:
    """A whole response; its body is JSON unless the headers say otherwise."""
    named = list(headers or ())
    if body and not any(name == JSON[0] for name, _ in named):
        named.append(JSON)
    await request.respond(status, body, named)


async def answer(session: HttpSession, exchange: Exchange, request: Request, headers: Headers) -> bool:
    """Send what comes for a request until its answer. True where the client went away before."""
    exchange.is_left = lambda: request.is_lost
    await exchange.wait(DEFER_S)
    if exchange.is_answered and exchange.is_left():
        session.give_up(exchange)
        return True
    if await _answered_alone(session, exchange, request, headers):
        return False
    return await _Reader(session, exchange, request, headers).serve()


async def resume(
    session: HttpSession, exchange: Exchange, missed: list[bytes], request: Request, headers: Headers
) -> None:
    """Continue a stream where its client left it."""
    await _Reader(session, exchange, request, headers).serve(missed)


async def stand(session: HttpSession, missed: list[bytes], request: Request, headers: Headers) -> None:
    """The client's standing stream: what belongs to none of its requests."""
    exchange = session.standing_exchange()
    session.listen(exchange)
    try:
        await resume(session, exchange, missed, request, headers)
    finally:
        session.stop_listening(exchange)


async def _answered_alone(
    session: HttpSession, exchange: Exchange, request: Request, headers: Headers
) -> bool:
    """Nothing but the answer has come: it is the whole body, however large, and its error the status."""
    if not exchange.is_answered or len(exchange.frames) != 1:
        return False
    frame = exchange.frames[0]
    status = 200 if exchange.is_resumable else _status(frame)
    # Registered first: the connection may end while the response is being written.
    request.when_delivered(session.sent(exchange, frame))
    await respond(request, status, frame, headers)
    return True


class _Reader:
    """One response that reads an exchange; a client that comes back elsewhere takes the exchange over."""

    def __init__(self, session: HttpSession, exchange: Exchange, request: Request, headers: Headers) -> None:
        self._session = session
        self._exchange = exchange
        self._request = request
        self._headers = headers
        self._has_begun = False
        self._number = exchange.read()

    async def serve(self, missed: list[bytes] | None = None) -> bool:
        """True where the client went away before the end. What it has missed means that it comes back."""
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
        """The response is undecided until something comes that is not its answer, or it takes long."""
        exchange = self._exchange
        while True:
            if not self._request.is_lost:
                await exchange.wait(self._patience())
            if exchange.readers != self._number:
                await self._request.end()
                return False
            if self._request.is_lost:
                self._session.give_up(exchange)
                return True
            if not self._has_begun and await _answered_alone(
                self._session, exchange, self._request, self._headers
            ):
                return False
            await self._begin()
            frame = b""
            for number in range(len(exchange.frames)):
                frame = exchange.frames.popleft()
                await self._request.write(self._event(frame))
                if number % FRAMES_PER_TURN == FRAMES_PER_TURN - 1:
                    await asyncio.sleep(0)  # to write may not wait at all, and others have something to do
            if exchange.frames:
                continue
            if exchange.is_answered:
                self._request.when_delivered(self._session.sent(exchange, frame))
            if exchange.is_answered or exchange.is_closed:
                await self._request.end()
                return False

    def _patience(self) -> float:
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
    """What the table of 2026 says for an error; a result is 200."""
    if b'"error":' not in frame[:600]:
        return 200
    message = decode(frame)
    if not isinstance(message, Response) or message.error is None:
        return 200
    code = members(message.error).get("code")
    return ladder.STATUS.get(cast("int", decode_id(code)) if code is not None else 0, 200)
