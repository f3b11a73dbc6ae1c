"""The serving process put together: HTTP in front, sessions in the middle, shared servers behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure import __version__
from perdure.host.compose import specs_of, wrapped_spec
from perdure.host.eventlog import EventLog
from perdure.host.guardian import Guardian, end_marked
from perdure.host.settings import Settings
from perdure.model.mounts import MountSpec
from perdure.serve import attached as attached_clients
from perdure.serve import prometheus
from perdure.serve.answering import Headers, Receive, Scope, Send, respond
from perdure.serve.guard import LOOPBACK, Guard
from perdure.serve.places import attach_path
from perdure.serve.registries import Registries
from perdure.serve.sessions import Sessions
from perdure.serve.store import Store
from perdure.serve.streamable import Streamable, refused
from perdure.serve.switchboard import Switchboard
from perdure.storage.places import private_dir

HEAD_S: Final = 10.0
GRACE_S: Final = 5.0
PREDECESSOR_S: Final = 5.0


class Options(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    metrics: bool = False
    wrap: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None


Pages = Callable[[Scope, Receive, Send], Awaitable[None]]
Front = Callable[[Sessions, Options], Pages]
ENDPOINTS: Final = ("/mcp", "/healthz", "/metrics")


class App:
    """The ASGI application. `front` makes the pages for people, which ask for the token in their own way."""

    def __init__(
        self, options: Options, settings: Settings, store: Store, front: Front | None = None
    ) -> None:
        self._options = options
        self._settings = settings
        self._store = store
        self._started = time.time()
        hosts = (*LOOPBACK, options.host) if options.host not in ("0.0.0.0", "::") else _own_names()
        self._guard = Guard(hosts, options.token)
        self._specs: dict[str, dict[str, MountSpec]] = {}
        self._registries = Registries()
        self.sessions: Sessions | None = None
        self._mcp: Streamable | None = None
        self._front = front
        self._pages: Pages | None = None

    def start(self, guardian: Guardian) -> None:
        limits = self._settings.limits
        switchboard = Switchboard(
            guardian, os.environ, limits.frame_bytes, limits.outbox_bytes, self._registries
        )
        log = EventLog(os.path.join(private_dir("log"), "events.jsonl"))
        self.sessions = Sessions(
            self._settings,
            self._specs_of,
            switchboard,
            self._store,
            log,
            wrapped=bool(self._options.wrap),
            registries=self._registries,
        )
        self._mcp = Streamable(self.sessions, limits.frame_bytes, self._workspace_of)
        self._pages = self._front(self.sessions, self._options) if self._front is not None else None

    async def close(self) -> None:
        assert self.sessions is not None
        self.sessions.close()
        await self.sessions.switchboard.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        headers: Headers = scope["headers"]
        is_page = self._pages is not None and path not in ENDPOINTS
        denied = self._guard.check(headers, needs_token=path != "/healthz" and not is_page)
        if denied is not None:
            body = refused(denied.status, denied.reason).body
            await respond(send, denied.status, body, list(denied.headers))
        elif path == "/mcp" and self._mcp is not None:
            await self._mcp(scope, receive, send)
        elif path == "/healthz" and scope["method"] in ("GET", "HEAD"):
            await respond(send, 200, self._health())
        elif path == "/metrics" and self._options.metrics and scope["method"] == "GET":
            text = prometheus.text(self.loaded, self._started)
            await respond(send, 200, text, [(b"content-type", prometheus.CONTENT_TYPE)])
        elif is_page and self._pages is not None:
            await self._pages(scope, receive, send)
        else:
            await respond(send, 404, refused(404, "there is nothing here").body)

    @property
    def loaded(self) -> Sessions:
        assert self.sessions is not None
        return self.sessions

    def _health(self) -> bytes:
        found: dict[str, Any] = {
            "status": "ok",
            "version": __version__,
            "uptime_s": round(time.time() - self._started, 1),
            "sessions": len(self.loaded.named),
            "servers": len(self.loaded.switchboard.running),
        }
        return msgspec.json.encode(found)

    def _workspace_of(self, scope: Scope) -> str:
        """The one a URL asks for, by its path or its name; none means all of them."""
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("workspace", [""])[-1]
        if not asked:
            return ""
        for path in self._settings.workspaces:
            if asked in (path, os.path.basename(path)):
                return path
        raise refused(404, "there is no such workspace here")

    def _specs_of(self, workspace: str) -> dict[str, MountSpec]:
        if workspace not in self._specs:
            if self._options.wrap:
                found = wrapped_spec(
                    os.path.basename(self._options.wrap[0]), self._options.wrap, self._settings
                )
            else:
                chosen = (workspace,) if workspace else self._settings.workspaces
                settings = msgspec.structs.replace(self._settings, workspaces=chosen)
                found = specs_of(settings)
                self._registries.open(workspace, settings, found)
            self._specs[workspace] = found
        return {**self._specs[workspace], **self._registries.current(workspace)}


class PatientProtocol(H11Protocol):
    """Who connects must say what he wants within a bounded time."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._impatience = self.loop.call_later(HEAD_S, self._too_slow)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            self._impatience.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._impatience.cancel()
        super().connection_lost(exc)

    def _too_slow(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Ends in good order at a signal, and says so by its exit code."""

    def __init__(self, config: uvicorn.Config, app: App) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._app.loaded.is_ending = True  # who only watches need not be waited for


def serve(
    options: Options,
    settings: Settings,
    listening: socket.socket,
    guardian: Guardian,
    address: str,
    front: Front | None = None,
) -> int:
    """Until a signal ends it. `address` is said once everybody is answered."""
    port: int = listening.getsockname()[1]
    store = Store(os.path.join(private_dir("serve"), f"sessions-{port}.db"))
    for mark in store.replace_mark(guardian.mark):
        end_marked(mark, PREDECESSOR_S)  # what a killed predecessor started must do nothing more
    app = App(options, settings, store, front)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(GRACE_S),
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    server = Server(config, app)

    async def run() -> None:
        app.start(guardian)
        socket_path = attach_path()
        attached = await attached_clients.listen(socket_path, app.loaded, settings.limits.frame_bytes)
        print(f"perdure serve: {address}", file=sys.stderr, flush=True)
        try:
            await server.serve(sockets=[listening])
        finally:
            if attached is not None:
                attached.close()
                os.unlink(socket_path)
            await app.close()

    try:
        asyncio.run(run())
    finally:
        store.close()
    return 0


def _own_names() -> tuple[str, ...]:
    """Bound to every address: by the names this machine knows of itself."""
    names = {*LOOPBACK, socket.gethostname(), socket.getfqdn()}
    try:
        names |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        pass
    return tuple(names)
