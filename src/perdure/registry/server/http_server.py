"""The sockets of a catalog server: one request per connection, bounded in bytes, time and number.

Requests are read strictly and answered in full or not at all; whoever sends slowly, too much, or to a name that is
not ours, is told so and cut off. The host name is checked, so that a web page cannot reach a catalog on this machine
under a name of its own.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl

from perdure import __version__
from perdure.platform import signals
from perdure.registry.http.address import is_loopback
from perdure.registry.server.app import CatalogApp
from perdure.registry.server.messages import Request, Response, problem

MAX_HEAD: Final = 32 * 1024
MAX_BODY: Final = 1024 * 1024
PIECE: Final = 64 * 1024
MAX_LINGER: Final = 256
REQUEST_S: Final = 10.0
CONNECTIONS: Final = 64
BUSY: Final = problem(503, "too many connections", {"retry-after": "1"})
_LINE: Final = re.compile(r"(?P<method>[A-Z]{1,16}) (?P<target>/[\x21-\x7e]*) HTTP/1\.[01]", re.ASCII)
_HEADER: Final = re.compile(r"(?P<name>[A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*(?P<value>[^\r\n\x00]*?)[ \t]*")


class _BadRequest(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class CatalogServer:
    """Serves until it is told to stop."""

    def __init__(self, app: CatalogApp, host: str, port: int, request_s: float = REQUEST_S) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._request_s = request_s
        self._open = 0

    def run(self, on_ready: Callable[[int], None]) -> None:
        """`on_ready` gets the port. Ends on SIGINT or SIGTERM. Raises OSError where the port is taken."""
        asyncio.run(self._serve(on_ready))

    async def _serve(self, on_ready: Callable[[int], None]) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signals.INTERRUPT, signals.TERMINATE):
            signals.handle_in_loop(loop, number, ended.set)
        server = await asyncio.start_server(self._connection, self._host, self._port, limit=MAX_HEAD)
        self._port = server.sockets[0].getsockname()[1]
        on_ready(self._port)
        await ended.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Count the connection until it is closed. One too many is answered and closed, and nothing of it is read."""
        if self._open >= CONNECTIONS:
            writer.write(_head(BUSY) + BUSY.body)
            writer.close()
            return
        self._open += 1
        try:
            await self._exchange(reader, writer)
        finally:
            self._open -= 1

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = "GET"
        try:
            async with asyncio.timeout(self._request_s):
                request = await self._request(reader)
            method = request.method
            response = await asyncio.to_thread(self._app.handle, request)
        except _BadRequest as error:
            response = problem(error.status, str(error))
        except TimeoutError:
            response = problem(408, "the request took too long")
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()
            return
        except Exception as error:  # an error of ours ends one request and not the server
            print(f"perdure registry serve: {type(error).__name__}", file=sys.stderr, flush=True)
            response = problem(500, "the catalog failed")
        await self._answer(reader, writer, response, has_body=method != "HEAD")

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: Response, has_body: bool
    ) -> None:
        try:
            async with asyncio.timeout(self._request_s):
                writer.write(_head(response) + (response.body if has_body else b""))
                await writer.drain()
                writer.write_eof()
                # What the client is still sending is read and dropped: closing now could take our answer with it.
                for _ in range(MAX_LINGER):
                    if not await reader.read(PIECE):
                        break
                writer.close()
                await writer.wait_closed()
        except (ConnectionError, TimeoutError):
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader) -> Request:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _BadRequest(431, "the request's head is too large") from None
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        line = _LINE.fullmatch(first)
        if line is None:
            raise _BadRequest(400, "this is not a request")
        headers = _headers(lines)
        self._check_host(headers.get("host", ""))
        path, _, query = line["target"].partition("?")
        try:
            asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=32))
        except ValueError:
            raise _BadRequest(400, "the query has too many fields") from None
        return Request(line["method"], path, asked, headers, await _body(reader, headers))

    def _check_host(self, host: str) -> None:
        name, _, port = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "80")
        name = name.strip("[]").lower()
        if self._host in ("0.0.0.0", "::", ""):
            return  # every name can lead here, and every request has shown the token
        mine = is_loopback(name) if is_loopback(self._host) else name == self._host.lower()
        if not mine or port not in (str(self._port), "80", "443"):
            raise _BadRequest(421, "this server goes by another name")


def _head(response: Response) -> bytes:
    headers = {
        "server": f"perdure/{__version__}",
        "connection": "close",
        "x-content-type-options": "nosniff",
        **response.headers,
    }
    if response.status != 304 and response.status != 204:
        headers["content-length"] = str(len(response.body))
    head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return head.encode("latin-1") + b"\r\n"


def _headers(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise _BadRequest(400, "the request has a header that cannot be read")
        name = match["name"].lower()
        if name in found and name in ("host", "content-length", "authorization"):
            raise _BadRequest(400, f"the request has {name} twice")
        found[name] = match["value"]
    return found


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise _BadRequest(411, "say how long the body is")
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"\d{1,12}", length, re.ASCII):
        raise _BadRequest(400, "content-length is not a number")
    if int(length) > MAX_BODY:
        raise _BadRequest(413, f"the body is larger than {MAX_BODY} bytes")
    return await reader.readexactly(int(length))
