"""A catalog on the HTTP server: requests as values for the app, one request per connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qsl

from perdure import __version__
from perdure.http.origin_check import LOOPBACK, OriginCheck
from perdure.http.server import BodyTooLarge, Disconnected, HttpServer, Limits, listen
from perdure.http.server import Request as HttpRequest
from perdure.platform import signals
from perdure.registry.server.app import CatalogApp
from perdure.registry.server.messages import Refused, Request, Response, problem

MAX_BODY: Final = 1024 * 1024
MAX_FIELDS: Final = 32
REQUEST_S: Final = 10.0
CONNECTIONS: Final = 64
EVERY_ADDRESS: Final = ("0.0.0.0", "::", "")
SINGLE: Final = (b"content-length", b"authorization")


class CatalogServer:
    """Serves until a signal ends it."""

    def __init__(self, app: CatalogApp, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._origin_check: OriginCheck | None = None

    def run(self, on_ready: Callable[[int], None]) -> None:
        """`on_ready` gets the port. Raises OSError where the port is taken."""
        listener = listen(self._host, self._port)
        port = listener.getsockname()[1]
        if self._host not in EVERY_ADDRESS:  # there any name may lead here, and every request shows the token
            self._origin_check = OriginCheck((*LOOPBACK, self._host), port)
        asyncio.run(self._serve(listener, lambda: on_ready(port)))

    async def _serve(self, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        ended = asyncio.Event()
        for number in (signals.INTERRUPT, signals.TERMINATE):
            signals.handle_in_loop(asyncio.get_running_loop(), number, ended.set)
        server = HttpServer(self._handle, Limits(connections=CONNECTIONS, head_s=REQUEST_S))
        await server.start(listener)
        on_ready()
        await ended.wait()
        await server.stop()

    async def _handle(self, request: HttpRequest) -> None:
        try:
            response = await self._answer(request)
        except Refused as error:
            response = problem(error.status, error.reason)
        except BodyTooLarge:
            response = problem(413, f"the body is larger than {MAX_BODY} bytes")
        except TimeoutError:
            response = problem(408, "the request took too long")
        except Disconnected:
            return
        headers = {
            "server": f"perdure/{__version__}",
            "connection": "close",
            "x-content-type-options": "nosniff",
            **response.headers,
        }
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await request.respond(response.status, response.body, encoded)

    async def _answer(self, request: HttpRequest) -> Response:
        if self._origin_check is not None and (denied := self._origin_check.check(request.headers)):
            raise Refused(denied.status, denied.reason)
        if request.header(b"transfer-encoding"):
            raise Refused(411, "say how long the body is")
        for name in SINGLE:
            if sum(key == name for key, _ in request.headers) > 1:
                raise Refused(400, f"the request has {name.decode()} twice")
        try:
            pairs = parse_qsl(
                request.query.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS
            )
        except ValueError:
            raise Refused(400, "the query has too many fields") from None
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        body = await request.read_all(MAX_BODY, REQUEST_S)
        message = Request(request.method, request.raw_path, dict(pairs), headers, body)
        return await asyncio.to_thread(self._app.handle, message)
