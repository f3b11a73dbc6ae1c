"""The HTTP server on real sockets: what is delivered, what is refused, and how it stops."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.http.server import BodyTooLarge, Disconnected, Handler, HttpServer, Limits, Request, listen

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), 30))

    run.__name__ = test.__name__
    return run


class Client:
    """A connection whose bytes the test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, bytes]:
        """Status and body of the next response with a length."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        return int(head.split()[1]), await self.reader.readexactly(length)

    def reset(self) -> None:
        """Close so that the system answers with a reset."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Site:
    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port

    async def connect(self, data: bytes = b"") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        client.writer.write(data)
        return client


@asynccontextmanager
async def serving(handler: Handler, **limits: Any) -> AsyncIterator[Site]:
    listener = listen("127.0.0.1", 0)
    server = HttpServer(handler, Limits(**limits))
    await server.start(listener)
    try:
        yield Site(server, listener.getsockname()[1])
    finally:
        await server.stop()


async def echo(request: Request) -> None:
    body = await request.read_all(1 << 24, 5)
    await request.respond(200, request.method.encode() + b" " + body)


@in_loop
async def test_a_connection_serves_many_requests_and_bodies_of_any_form() -> None:
    async with serving(echo) as site:
        client = await site.connect(GET)
        assert await client.answer() == (200, b"GET ")
        client.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        assert await client.answer() == (200, b"POST abc")
        client.writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        )
        assert await client.answer() == (200, b"POST abc")
        client.writer.write(
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        client.writer.write(b"x")
        assert await client.answer() == (200, b"POST x")


@in_loop
async def test_a_body_larger_than_every_buffer_arrives_whole() -> None:
    async with serving(echo) as site:
        body = b"0123456789abcdef" * 500_000
        client = await site.connect(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        client.writer.write(body)
        status, answer = await client.answer()
        assert (status, answer == b"POST " + body) == (200, True)


@in_loop
async def test_requests_that_are_sent_at_once_are_answered_in_order() -> None:
    async def handler(request: Request) -> None:
        await request.respond(200, request.path.encode())

    async with serving(handler) as site:
        pipelined = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(50))
        client = await site.connect(pipelined)
        assert [(await client.answer())[1] for _ in range(50)] == [b"/%d" % number for number in range(50)]


@in_loop
async def test_an_answer_is_delivered_when_the_next_request_comes_or_the_client_closes() -> None:
    delivered: list[bool] = []

    async def handler(request: Request) -> None:
        request.when_delivered(delivered.append)
        await request.respond(200, b"answer")

    async with serving(handler) as site:
        client = await site.connect(GET)
        await client.answer()
        assert delivered == []
        client.writer.write(LAST)
        await client.answer()
        assert delivered == [True]
        client.writer.close()
        while site.server.connections:
            await asyncio.sleep(0)
        assert delivered == [True, True]


@in_loop
async def test_an_answer_to_a_client_that_left_is_not_delivered() -> None:
    delivered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    may_answer = asyncio.Event()

    async def handler(request: Request) -> None:
        await may_answer.wait()
        request.when_delivered(delivered.set_result)
        await request.respond(200, b"answer")

    async with serving(handler) as site:
        client = await site.connect(GET)
        await client.writer.drain()
        while not site.server.connections:
            await asyncio.sleep(0)
        client.reset()
        may_answer.set()
        assert await delivered is False


@in_loop
async def test_an_answer_that_the_client_does_not_read_is_not_delivered() -> None:
    delivered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    is_writing = asyncio.Event()

    async def handler(request: Request) -> None:
        request.when_delivered(delivered.set_result)
        is_writing.set()
        await request.respond(200, b"x" * 50_000_000)

    async with serving(handler) as site:
        connection = socket.create_connection(("127.0.0.1", site.port))
        connection.sendall(GET)
        await is_writing.wait()
        connection.close()
        assert await delivered is False


@in_loop
async def test_a_handler_learns_that_its_client_is_gone() -> None:
    seen: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def handler(request: Request) -> None:
        if request.method == "POST":
            try:
                await request.read_all(100, 5)
            except Disconnected:
                seen.set_result("body")
            return
        await request.start(200, [])
        await request.lost
        await request.write(b"nobody reads this")
        await request.end()
        seen.set_result("stream")

    async with serving(handler) as site:
        client = await site.connect(GET)
        await client.reader.readuntil(b"\r\n\r\n")
        client.writer.close()
        assert await seen == "stream"
        seen = asyncio.get_running_loop().create_future()
        client = await site.connect(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        await client.writer.drain()
        client.writer.close()
        assert await seen == "body"


@in_loop
async def test_a_body_over_the_limit_is_refused_and_the_answer_arrives_while_it_is_sent() -> None:
    async def handler(request: Request) -> None:
        try:
            await request.read_all(1000, 5)
        except BodyTooLarge:
            await request.respond(413, b"too large", [(b"connection", b"close")])

    async with serving(handler) as site:
        client = await site.connect(CHUNKED)
        for _ in range(200):
            client.writer.write(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert await client.answer() == (413, b"too large")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HT", 408),
        (b"", 0),
    ],
)
def test_what_is_not_a_request_in_time_is_refused_and_closed(data: bytes, status: int) -> None:
    async def run() -> None:
        async with serving(echo, head_s=0.2) as site:
            client = await site.connect(data)
            answer = await client.reader.read()
            assert answer == b"" if status == 0 else int(answer.split()[1]) == status

    asyncio.run(run())


@in_loop
async def test_one_connection_too_many_gets_503() -> None:
    async with serving(echo, connections=16) as site:
        clients = [await site.connect(GET) for _ in range(16)]
        for client in clients:
            await client.answer()
        refused = await site.connect()
        assert (await refused.answer())[0] == 503
        clients[0].writer.close()
        while len(site.server.connections) > 15:
            await asyncio.sleep(0.01)
        assert (await (await site.connect(GET)).answer())[0] == 200


@in_loop
async def test_a_handler_that_fails_costs_its_request_only() -> None:
    async def handler(request: Request) -> None:
        if request.path == "/error":
            raise ValueError
        if request.path == "/half":
            await request.start(200, [(b"content-length", b"10")])
            await request.write(b"half")
            return
        await echo(request)

    async with serving(handler) as site:
        failed = await site.connect(GET.replace(b"/ ", b"/error ", 1))
        assert (await failed.answer())[0] == 500
        half = await site.connect(GET.replace(b"/ ", b"/half ", 1))
        assert (await half.reader.read()).endswith(b"half")
        assert (await (await site.connect(GET)).answer())[0] == 200


@in_loop
async def test_it_stops_when_running_requests_are_answered_and_cancels_those_that_take_longer() -> None:
    began = asyncio.Semaphore(0)
    may_answer, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> None:
        began.release()
        if request.path == "/forever":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
        await may_answer.wait()
        await request.respond(200, b"done")

    async with serving(handler) as site:
        idle = await site.connect()
        running, endless = await site.connect(GET), await site.connect(GET.replace(b"/ ", b"/forever ", 1))
        await began.acquire()
        await began.acquire()
        stopping = asyncio.ensure_future(site.server.stop(0.5))
        assert await idle.reader.read() == b""
        may_answer.set()
        answer = await running.reader.read()
        assert b"connection: close" in answer.lower()
        assert answer.endswith(b"done")
        await stopping
        assert cancelled.is_set()
        assert await endless.reader.read() == b""
        with pytest.raises(OSError):
            await site.connect()
