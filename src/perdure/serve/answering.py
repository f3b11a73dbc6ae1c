"""Answering over HTTP: as one JSON body where that is all, else as a stream of server-sent events.

A stream of the handshake era numbers its events, so that its client can leave it and come back; 2026 knows no such
thing, and a client that goes away has cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

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

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Line(Protocol):
    """The connection that an answer is written to."""

    @property
    def is_lost(self) -> bool:
        """Whether the client's end is known already."""

    def when_settled(self, settled: Callable[[bool], None]) -> None:
        """`settled` hears whether what was written so far has arrived."""


async def respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    found = [*(headers or ()), (b"content-length", str(len(body)).encode())]
    if body:
        found.append(JSON)
    await send({"type": "http.response.start", "status": status, "headers": found})
    await send({"type": "http.response.body", "body": body})


async def answer(
    session: HttpSession, exchange: Exchange, receive: Receive, send: Send, headers: Headers, line: Line
) -> bool:
    """Send what comes for a request until its answer. True where the client went away before."""
    exchange.is_left = lambda: line.is_lost
    await exchange.wait(DEFER_S)
    if exchange.is_answered and exchange.is_left():
        session.give_up(exchange)
        return True
    if await _answered_alone(session, exchange, send, headers, line):
        return False
    return await _Reader(session, exchange, receive, send, headers, line).serve()


async def resume(
    session: HttpSession,
    exchange: Exchange,
    missed: list[bytes],
    receive: Receive,
    send: Send,
    headers: Headers,
    line: Line,
) -> None:
    """Go on with a stream where its client left it."""
    await _Reader(session, exchange, receive, send, headers, line).serve(missed)


async def stand(
    session: HttpSession, missed: list[bytes], receive: Receive, send: Send, headers: Headers, line: Line
) -> None:
    """The client's standing stream: what belongs to none of its requests."""
    exchange = session.standing_exchange()
    session.listen(exchange)
    try:
        await resume(session, exchange, missed, receive, send, headers, line)
    finally:
        session.stop_listening(exchange)


async def _answered_alone(
    session: HttpSession, exchange: Exchange, send: Send, headers: Headers, line: Line
) -> bool:
    """Nothing but the answer has come: it is the whole body, however large, and its error the status."""
    if not exchange.is_answered or len(exchange.frames) != 1:
        return False
    frame = exchange.frames[0]
    await respond(send, 200 if exchange.is_resumable else _status(frame), frame, headers)
    line.when_settled(session.sent(exchange, frame))
    return True


class _Reader:
    """One response that reads an exchange; a client that comes back elsewhere takes the exchange over."""

    def __init__(
        self,
        session: HttpSession,
        exchange: Exchange,
        receive: Receive,
        send: Send,
        headers: Headers,
        line: Line,
    ) -> None:
        self._line = line
        self._session = session
        self._exchange = exchange
        self._send = send
        self._headers = headers
        self._has_begun = False
        self._number = exchange.read()
        self._watcher = asyncio.ensure_future(_gone(receive))
        self._watcher.add_done_callback(lambda _: exchange.wake())

    async def serve(self, missed: list[bytes] | None = None) -> bool:
        """True where the client went away before the end. What it has missed means that it comes back."""
        try:
            if missed is not None:
                await self._begin()
                for event in missed:
                    await self._write(event)
            return await self._serve()
        finally:
            self._watcher.cancel()

    async def _serve(self) -> bool:
        """The response is undecided until something comes that is not its answer, or it takes long."""
        exchange = self._exchange
        while True:
            if not self._watcher.done():
                await exchange.wait(self._patience())
            if exchange.readers != self._number:
                await self._end()
                return False
            if self._watcher.done():
                self._session.give_up(exchange)
                return True
            if not self._has_begun and await _answered_alone(
                self._session, exchange, self._send, self._headers, self._line
            ):
                return False
            await self._begin()
            frame = b""
            for number in range(len(exchange.frames)):
                frame = exchange.frames.popleft()
                await self._write(self._event(frame))
                if number % FRAMES_PER_TURN == FRAMES_PER_TURN - 1:
                    await asyncio.sleep(0)  # to write may not wait at all, and others have something to do
            if exchange.frames:
                continue
            if exchange.is_answered:
                self._line.when_settled(self._session.sent(exchange, frame))
            if exchange.is_answered or exchange.is_closed:
                await self._end()
                return False

    def _patience(self) -> float:
        is_primed = self._exchange.is_resumable and self._session.version >= PRIMED_SINCE
        return STREAM_S if is_primed and not self._has_begun else PING_S

    async def _begin(self) -> None:
        if self._has_begun:
            if not (self._exchange.frames or self._exchange.is_answered or self._exchange.is_closed):
                await self._write(b": still there\n\n")
            return
        self._has_begun = True
        headers = [*STREAM, *self._headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        if self._exchange.is_resumable and self._exchange.stream is None:
            self._exchange.stream = Stream(self._exchange.id)
        if self._exchange.stream is not None and self._session.version >= PRIMED_SINCE:
            await self._write(self._exchange.stream.prime())
        else:
            await self._write(b": open\n\n")

    def _event(self, frame: bytes) -> bytes:
        if self._exchange.stream is not None:
            return self._exchange.stream.event(frame)
        return b"event: message\ndata: " + frame + b"\n\n"

    async def _write(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self) -> None:
        if not self._watcher.done():
            await self._send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _status(frame: bytes) -> int:
    """What the table of 2026 says for an error; a result is 200."""
    if b'"error":' not in frame[:600]:
        return 200
    message = decode(frame)
    if not isinstance(message, Response) or message.error is None:
        return 200
    code = members(message.error).get("code")
    return ladder.STATUS.get(cast("int", decode_id(code)) if code is not None else 0, 200)
