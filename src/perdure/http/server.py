"""The HTTP/1.1 server of `perdure serve`, its dashboard and `perdure registry serve`: h11 on an asyncio transport.

h11 decides what is valid HTTP and when a connection may be used again. This module adds what h11 leaves to a server:

| limit | what happens beyond it |
|---|---|
| open connections | 503 and closed, nothing is read |
| bytes of a head | 431 and closed |
| seconds until a head is complete, also between two requests of a connection | 408, or closed if nothing was sent |
| seconds for the rest of a body that no handler reads | closed |
| seconds without an acknowledgement of sent bytes | closed by the system |

**Delivery.** `Request.when_delivered` tells whether a response reached the client's machine. The system knows: bytes
that the other end has not acknowledged stay in the socket's send queue. The queue is looked at when the next request
of the connection arrives and when the connection ends. To have an acknowledgement to look at, a connection is not
just closed after its last response: it is shut down for writing and read until the client closes it (lingering close).

A connection is in one phase at a time:

| phase | event | next phase |
|---|---|---|
| WAITING | a request's head is complete | ANSWERING |
| WAITING | timeout, or bytes that are not HTTP | CLOSING |
| ANSWERING | the response is complete, and the connection can be used again | WAITING |
| ANSWERING | the response is complete, and it was the last one | CLOSING |
| any | the transport reports the end of the connection | LOST |
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import unquote

import h11
import msgspec

from perdure.platform import sockets
from perdure.platform.limits import file_limit

UNACKNOWLEDGED_S: Final = 60
SPARE_FILES: Final = 256  # for the stores, and the pipes of servers
TOO_LARGE: Final = "the head of the request is too large"
UNREAD_BYTES: Final = 64 * 1024  # of a body, before the transport stops reading
STOPPED_S: Final = 1.0  # for the last bytes of responses, when the server stops

Headers = list[tuple[bytes, bytes]]
Delivered = Callable[[bool], None]
Handler = Callable[["Request"], Awaitable[None]]

log = logging.getLogger("perdure.http")


class Limits(msgspec.Struct, frozen=True):
    connections: int = 1000
    head_bytes: int = 32 * 1024
    head_s: float = 10.0


class Disconnected(Exception):
    """The connection ended before the body was complete."""


class BodyTooLarge(Exception):
    """The body has more bytes than the handler accepts."""


class _Phase(Enum):
    WAITING = auto()
    ANSWERING = auto()
    CLOSING = auto()
    LOST = auto()


class Request:
    """One request and its response. Writing to a connection that has ended does nothing."""

    def __init__(self, connection: _Connection, head: h11.Request) -> None:
        self._connection = connection
        self.method = head.method.decode("ascii")
        self.headers: Headers = list(head.headers)  # names in lower case
        raw_path, _, query = head.target.partition(b"?")
        self.raw_path = raw_path.decode("ascii")
        self.path = unquote(self.raw_path)
        self.query = query
        self._pieces: list[bytes] = []
        self._unread = 0
        self._has_whole_body = False
        self._body_arrived: asyncio.Future[None] | None = None

    @property
    def client(self) -> tuple[str, int]:
        """Address and port of the other end."""
        return self._connection.peer

    @property
    def server_port(self) -> int:
        return self._connection.server_port

    @property
    def is_tls(self) -> bool:
        return self._connection.is_tls

    def header(self, name: bytes) -> str:
        """The first value of a header; empty without one."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")

    # --- the body of the request -----------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end. Raises Disconnected."""
        self._connection.send_continue()
        while not self._pieces:
            if self._has_whole_body:
                return b""
            if self._connection.phase is not _Phase.ANSWERING:
                raise Disconnected
            self._connection.transport.resume_reading()
            self._body_arrived = asyncio.get_running_loop().create_future()
            await self._body_arrived
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._unread = 0
        return data

    async def read_all(self, most_bytes: int, seconds: float) -> bytes:
        """The whole body. Raises BodyTooLarge, TimeoutError, Disconnected."""
        declared = self.header(b"content-length")
        if declared.isdigit() and int(declared) > most_bytes:
            raise BodyTooLarge
        body = b""
        async with asyncio.timeout(seconds):
            while piece := await self.read():
                body += piece
                if len(body) > most_bytes:
                    raise BodyTooLarge
        return body

    def take(self, data: bytes) -> None:
        """A piece of the body has arrived."""
        self._pieces.append(data)
        self._unread += len(data)
        if self._unread > UNREAD_BYTES:
            self._connection.transport.pause_reading()
        self.wake()

    def take_end(self) -> None:
        self._has_whole_body = True
        self.wake()

    def wake(self) -> None:
        if self._body_arrived is not None and not self._body_arrived.done():
            self._body_arrived.set_result(None)

    # --- the response ----------------------------------------------------------------------------------------

    async def respond(
        self, status: int, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """A whole response."""
        own = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
        self._connection.send_response(status, [*headers, *own], body if self.method != "HEAD" else b"")
        await self._connection.drain()

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """The head of a response whose body follows by `write` and ends by `end`."""
        self._connection.send_head(status, headers)
        await self._connection.drain()

    async def write(self, data: bytes) -> None:
        """Waits while the client reads more slowly than the body is written."""
        self._connection.send(h11.Data(data))
        await self._connection.drain()

    async def end(self) -> None:
        self._connection.send(h11.EndOfMessage())

    # --- delivery --------------------------------------------------------------------------------------------

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when the connection has ended. It is shared by all requests of a connection."""
        return self._connection.lost

    @property
    def is_lost(self) -> bool:
        return self._connection.lost.done()

    def when_delivered(self, callback: Delivered) -> None:
        """Call back, once, with whether everything written so far reached the client's machine."""
        self._connection.when_delivered(callback)


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=server.limits.head_bytes)
        self.phase = _Phase.WAITING
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.peer: tuple[str, int] = ("", 0)
        self.server_port = 0
        self.is_tls = False
        self._request: Request | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._undelivered: list[Delivered] = []

    # --- called by the transport -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.peer = cast("tuple[str, int]", (transport.get_extra_info("peername") or ("", 0))[:2])
        self.server_port = (transport.get_extra_info("sockname") or ("", 0))[1]
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        connections = self._server.connections
        connections.add(self)
        sockets.close_if_unread(transport.get_extra_info("socket"), UNACKNOWLEDGED_S)
        if len(connections) > self._server.most_connections:
            self._send_error(503, "too many connections", (b"retry-after", b"5"))
            self._set_phase(_Phase.CLOSING)
            self.transport.close()
        else:
            self._set_timer()

    def data_received(self, data: bytes) -> None:
        if self.phase is not _Phase.CLOSING:  # while lingering, what still comes is dropped
            self._http.receive_data(data)
            self._take_events()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._set_phase(_Phase.LOST)
        self._cancel_timer()
        self._settle(delivered=exc is None and self._is_acknowledged())
        self.resume_writing()
        self.lost.set_result(None)

    # --- requests --------------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        while self.phase in (_Phase.WAITING, _Phase.ANSWERING):
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if error.error_status_hint == 431:
                    self._refuse(431, TOO_LARGE)
                else:
                    self._refuse(400, "this is not HTTP")
                return
            if event is h11.NEED_DATA:
                return
            if event is h11.PAUSED:  # the client sends the next request before this one is answered
                self.transport.pause_reading()
                return
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data) and self._request is not None:
                self._request.take(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                if self._request is not None:
                    self._request.take_end()
                else:
                    self._http.start_next_cycle()  # the rest of a body after its response

    def _begin(self, head: h11.Request) -> None:
        if (
            _head_size(head) > self._server.limits.head_bytes
        ):  # h11 limits only a head that is not complete yet
            self._refuse(431, TOO_LARGE)
            return
        if not head.target.startswith(b"/"):
            self._refuse(400, "the request must name a path")
            return
        if self.transport.get_write_buffer_size() == 0 and self._is_acknowledged():
            self._settle(delivered=True)  # a client that pipelines may not have read the last response yet
        self._cancel_timer()
        self._set_phase(_Phase.ANSWERING)
        self._request = Request(self, head)
        self._server.handle(self, self._request)

    def _end(self) -> None:
        """The response is complete."""
        self._request = None
        if self._http.our_state is not h11.DONE or self._server.is_stopping:
            self._close()
            return
        self._set_phase(_Phase.WAITING)
        self._set_timer()
        self.transport.resume_reading()
        if self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._take_events()

    def _refuse(self, status: int, reason: str) -> None:
        self._send_error(status, reason)
        self._close()

    def _set_phase(self, phase: _Phase) -> None:
        self.phase = phase
        if self._request is not None:
            self._request.wake()

    # --- timeouts and closing --------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(self._server.limits.head_s, self._time_out)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.phase is _Phase.CLOSING:
            self.abort()
        elif self._http.our_state is h11.IDLE and self._http.trailing_data[0]:
            self._refuse(408, "the head of the request took too long")
        else:
            self.transport.close()

    def _close(self) -> None:
        """Lingering close: closing with bytes unread would make the system reset the connection and drop our answer."""
        self._set_phase(_Phase.CLOSING)
        if self.transport.can_write_eof():
            self._set_timer()
            self.transport.resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()

    def abort(self) -> None:
        """Close without waiting for the client to read."""
        if self.transport.get_write_buffer_size():
            self._settle(delivered=False)
        self.transport.abort()

    def abandon(self, request: Request) -> None:
        """The handler has ended. Without a whole response the connection cannot be used again."""
        if self._request is request and self.phase is _Phase.ANSWERING:
            self._refuse(500, "an error inside the server")

    def stop(self) -> None:
        """The server stops: a connection without a request is closed, another one after its response."""
        if self.phase is not _Phase.ANSWERING:
            self.transport.close()

    # --- writing ---------------------------------------------------------------------------------------------

    def send_continue(self) -> None:
        if self.phase is _Phase.ANSWERING and self._http.they_are_waiting_for_100_continue:
            self.send(h11.InformationalResponse(status_code=100, headers=[]))

    def send_head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.send(self._head(status, headers))

    def send_response(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        self.send(self._head(status, headers), h11.Data(body), h11.EndOfMessage())

    def send(self, *events: h11.Event) -> None:
        """Events of one response, in one write."""
        if self.phase is not _Phase.ANSWERING:
            return
        self.transport.write(b"".join([self._http.send(event) or b"" for event in events]))
        if type(events[-1]) is h11.EndOfMessage:
            self._end()

    def _head(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> h11.Response:
        own = [(b"date", self._server.date())]
        if self._server.is_stopping:
            own.append((b"connection", b"close"))
        reason = HTTPStatus(status).phrase.encode()
        return h11.Response(status_code=status, headers=[*headers, *own], reason=reason)

    def _send_error(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        """Where there is no handler to ask. Nothing is sent after the beginning of a response."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = f"{reason}\n".encode()
        own = [
            (b"content-type", b"text/plain"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        parts = [self._head(status, [*own, *headers]), h11.Data(body), h11.EndOfMessage()]
        self.transport.write(b"".join([self._http.send(part) or b"" for part in parts]))

    async def drain(self) -> None:
        """Backpressure: wait until the transport takes more."""
        if self._writable is not None:
            await self._writable

    # --- delivery --------------------------------------------------------------------------------------------

    def when_delivered(self, callback: Delivered) -> None:
        if self.phase is not _Phase.ANSWERING:
            callback(False)
        else:
            self._undelivered.append(callback)

    def _settle(self, *, delivered: bool) -> None:
        callbacks, self._undelivered = self._undelivered, []
        for callback in callbacks:
            callback(delivered)

    def _is_acknowledged(self) -> bool:
        """Whether the other end took everything. A client that left early has reset the connection instead."""
        connection = self.transport.get_extra_info("socket")
        try:
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return False
            return sockets.unsent_bytes(connection) == 0
        except OSError:
            return False


class HttpServer:
    """Runs `handler` for each request, in a task of its own."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self._handler = handler
        self.limits = limits
        files = file_limit()
        most = limits.connections
        self.most_connections = most if files is None else max(16, min(most, files - SPARE_FILES))
        self.connections: set[_Connection] = set()
        self.is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []
        self._date = (0, b"")

    async def start(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._listeners.append(
            await loop.create_server(lambda: _Connection(self), sock=listener, ssl=tls, backlog=1024)
        )

    async def stop(self, seconds: float = 0.0) -> None:
        """No new connections; requests have this long to end, then they are cancelled."""
        self.is_stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.stop()
        if self._tasks and seconds:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self.connections):
            connection.transport.close()
        if self.connections:
            await asyncio.wait([one.lost for one in self.connections], timeout=STOPPED_S)
        for connection in list(self.connections):
            connection.abort()

    def handle(self, connection: _Connection, request: Request) -> None:
        task = asyncio.get_running_loop().create_task(self._run(connection, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: _Connection, request: Request) -> None:
        try:
            await self._handler(request)
        except Exception:
            log.exception("a request could not be answered")
        connection.abandon(request)

    def date(self) -> bytes:
        """For the `Date` header, computed once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now)).encode())
        return self._date[1]


def _head_size(head: h11.Request) -> int:
    return (
        len(head.method) + len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises OSError where the address cannot be used, OverflowError for no port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named: asyncio turns Nagle's algorithm off only where it knows that this is TCP.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(1024)
    except (OSError, OverflowError):
        made.close()
        raise
    return made
