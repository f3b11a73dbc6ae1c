"""The serving process put together: HTTP in front, sessions in the middle, shared servers behind."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from perdure import __version__
from perdure.host.compose import new_exporter, specs_of, wrapped_spec
from perdure.host.console import Console
from perdure.host.serve_options import Serving
from perdure.host.settings import Settings
from perdure.host.workspace_trust import untrusted_files
from perdure.http.origin_check import LOOPBACK, Denied, OriginCheck
from perdure.http.server import Headers, HttpServer, Limits, Request
from perdure.platform import signals
from perdure.platform.guardian import Guardian, end_marked
from perdure.protocol.mounts import MountSpec
from perdure.serve import hooks, prometheus, unix_transport
from perdure.serve.answering import respond
from perdure.serve.entrance import Entrance
from perdure.serve.logs import to_console
from perdure.serve.pace import Pace
from perdure.serve.places import attach_path
from perdure.serve.registries import Registries
from perdure.serve.server_pool import ServerPool
from perdure.serve.session_table import SessionTable
from perdure.serve.store import InUse, Store
from perdure.serve.streamable import Streamable, overdone, refused
from perdure.storage.event_log import EventLog
from perdure.storage.user_dirs import private_dir

PREDECESSOR_S: Final = 5.0
CLOSE_S: Final = 8.0  # for servers to end, and a store
SESSION: Final = b"mcp-session-id"
UNAVAILABLE: Final = 4


class Options(msgspec.Struct, frozen=True):
    """`client_secret` is what we prove ourselves with to the authorization server, where it wants that."""

    token: str | None = None
    wrap: tuple[str, ...] = ()
    serving: Serving = Serving()
    client_secret: str = ""


Pages = Callable[[Request], Awaitable[None]]
Front = Callable[[SessionTable, Options], Pages]
ENDPOINTS: Final = ("/mcp", "/healthz", "/metrics")


class App:
    """The handler of every request. `front` makes the pages for people, which ask for the token in their own way."""

    def __init__(
        self,
        options: Options,
        settings: Settings,
        store: Store,
        port: int,
        address: str,
        console: Console,
        front: Front | None = None,
    ) -> None:
        self._console = console
        self._options = options
        self._serving = options.serving
        self._settings = settings
        self._store = store
        self._started = time.time()
        host = self._serving.host
        hosts = (*LOOPBACK, host) if host not in ("0.0.0.0", "::") else _own_names()
        self._origin_check = OriginCheck(hosts, port, self._serving.public_url)
        self._oauth = _resource_server(options, address)
        self._entrance = Entrance(options.token, self._oauth)
        self._documents = self._oauth.metadata_paths if self._oauth is not None else ()
        limits = self._serving.limits
        self._pace = Pace(limits.session_rate, limits.session_rate * 2)
        self._address_pace = Pace(limits.address_rate, limits.address_rate * 2)
        self._specs: dict[str, dict[str, MountSpec]] = {}
        self._registries = Registries()
        self.sessions: SessionTable | None = None
        self._mcp: Streamable | None = None
        self._hooks: hooks.Hooks | None = None
        self._front = front
        self._pages: Pages | None = None
        # Access tokens are for /mcp: pages for people are kept by the token alone.
        self._shows_pages = front is not None and (self._oauth is None or options.token is not None)

    def start(self, guardian: Guardian) -> None:
        limits = self._settings.limits
        server_pool = ServerPool(
            guardian, os.environ, limits.frame_bytes, limits.outbox_bytes, self._registries
        )
        log = EventLog(os.path.join(private_dir("log"), "events.jsonl"))
        self.sessions = SessionTable(
            self._settings,
            self._specs_of,
            server_pool,
            self._store,
            log,
            wrapped=bool(self._options.wrap),
            registries=self._registries,
            limits=self._serving.limits,
            console=self._console,
            exporter=new_exporter(self._settings),
        )
        self._mcp = Streamable(self.sessions, self._workspace_of)
        if not self._options.wrap:
            self._hooks = hooks.Hooks(self._settings.workspaces, self._mcp.read_body)
        self._pages = self._front(self.sessions, self._options) if self._front is not None else None

    async def close(self) -> None:
        assert self.sessions is not None
        self.sessions.close()
        await self.sessions.server_pool.close()

    def end(self) -> None:
        """Who only watches need not be waited for."""
        self.loaded.is_ending = True

    def reload(self) -> None:
        """Roll every server over to what is installed now."""
        self.loaded.reload()

    async def __call__(self, request: Request) -> None:
        path = request.path
        denied = self._origin_check.check(request.headers) or self._too_fast(request)
        is_hook = path.startswith(hooks.PREFIX)
        is_page = self._shows_pages and not is_hook and path not in (*ENDPOINTS, *self._documents)
        owner = ""
        if denied is None and not is_page and path != "/healthz" and path not in self._documents:
            found = await self._entrance.admit(request.headers)
            if isinstance(found, Denied):
                denied = found
            else:
                owner = found.owner
        if denied is not None:
            body = denied.body or refused(denied.status, denied.reason).body
            await respond(request, denied.status, body, list(denied.headers))
        elif path == "/mcp" and self._mcp is not None:
            await self._mcp(request, owner)
        elif is_hook and self._hooks is not None:
            await self._hooks(request, owner)
        elif is_page and self._pages is not None:
            await self._pages(request)
        elif request.method in ("GET", "HEAD") and (document := self._document(path)) is not None:
            await respond(request, 200, *document)
        else:
            await respond(request, 404, refused(404, "there is nothing here").body)

    def _too_fast(self, request: Request) -> Denied | None:
        """By the session where there is one, else by the address."""
        named = request.header(SESSION)
        now = time.monotonic()
        if named in self.loaded.named:
            wait = self._pace.wait(named, now)
        else:
            wait = self._address_pace.wait(request.client[0], now)
        if not wait:
            return None
        no = overdone(429, "too many requests: wait as long as Retry-After says.", "too_fast", wait)
        return Denied(
            no.status, "too many requests: wait as long as Retry-After says.", tuple(no.headers), no.body
        )

    def _document(self, path: str) -> tuple[bytes, Headers] | None:
        if path == "/healthz":
            return self._health(), []
        if path == "/metrics" and self._serving.metrics:
            text = prometheus.text(self.loaded, self._started)
            return text, [(b"content-type", prometheus.CONTENT_TYPE)]
        if self._oauth is not None and path in self._documents:
            return self._oauth.metadata(), [(b"cache-control", b"max-age=3600")]
        return None

    @property
    def loaded(self) -> SessionTable:
        assert self.sessions is not None
        return self.sessions

    def _health(self) -> bytes:
        found: dict[str, Any] = {
            "status": "ok",
            "version": __version__,
            "uptime_s": round(time.time() - self._started, 1),
            "sessions": len(self.loaded.named),
            "servers": len(self.loaded.server_pool.running),
        }
        return msgspec.json.encode(found)

    def _workspace_of(self, request: Request) -> str:
        """The one a URL asks for, by its path or its name; none means all of them."""
        asked = parse_qs(request.query.decode("latin-1")).get("workspace", [""])[-1]
        if (found := self.loaded.workspace_of(asked)) is None:
            raise refused(404, "there is no such workspace here")
        return found

    def _specs_of(self, workspace: str) -> dict[str, MountSpec]:
        if workspace not in self._specs:
            if self._options.wrap:
                found = wrapped_spec(
                    os.path.basename(self._options.wrap[0]), self._options.wrap, self._settings
                )
            else:
                chosen = (workspace,) if workspace else self._settings.workspaces
                root = self._settings.settings_root or self._settings.workspaces[0]
                settings = msgspec.structs.replace(self._settings, workspaces=chosen, settings_root=root)
                found = specs_of(settings)
                self._registries.open(workspace, settings, found)
            self._specs[workspace] = found
        return {**self._specs[workspace], **self._registries.current(workspace)}


def serve(
    options: Options,
    settings: Settings,
    listening: socket.socket,
    guardian: Guardian,
    address: str,
    front: Front | None = None,
    banner: tuple[str, ...] = (),
) -> int:
    """Until a signal ends it. `address`, and then `banner`, is said once everybody is answered."""
    serving = options.serving
    bound, port = listening.getsockname()[:2]
    name = f"sessions-{bound.replace(':', '.')}-{port}.db"  # two may listen at one port, at two addresses
    try:
        store = Store(os.path.join(private_dir("serve"), name))
    except InUse:
        console = Console(settings.log_level, settings.log_format)
        console.announce(
            f"perdure serve: another perdure serve listens at this address and uses its sessions ({name})",
            "in_use",
            {"store": name},
        )
        return UNAVAILABLE
    for mark in store.replace_mark(guardian.mark):
        end_marked(mark, PREDECESSOR_S)  # what a killed predecessor started must do nothing more
    console = Console(settings.log_level, settings.log_format)
    to_console(console)
    app = App(options, settings, store, port, address, console, front)
    limits = serving.limits
    server = HttpServer(app, Limits(limits.connections, limits.header_bytes, limits.header_s))

    async def run() -> None:
        ended = _handle_signals(app, limits.drain_s + CLOSE_S)
        app.start(guardian)
        attached = await unix_transport.listen(attach_path(), app.loaded, settings.limits.frame_bytes)
        await server.start(listening, _tls(serving))
        console.announce(f"perdure serve: {address}", "listening", {"address": address}, banner)
        for file in () if options.wrap else untrusted_files(settings, os.environ):
            console.announce(f"perdure serve: {file.sentence}", "untrusted", {"path": file.path})
        try:
            await ended.wait()
            await server.stop(limits.drain_s)
        finally:
            if attached is not None:
                await attached.close()
            await app.close()

    try:
        asyncio.run(run())
    finally:
        store.close()
    return 0


def _handle_signals(app: App, most_s: float) -> asyncio.Event:
    """The event that a signal ends this process. After `most_s` more seconds the system ends it, whatever holds it up."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    had_terminal = os.isatty(0)

    def end() -> None:
        signals.end_after(most_s)
        app.end()
        ended.set()

    def reload() -> None:
        """The same signal says that the terminal was closed."""
        if had_terminal and not os.isatty(0):
            end()
        else:
            app.reload()

    for number in (signals.TERMINATE, signals.INTERRUPT):
        signals.handle_in_loop(loop, number, end)
    signals.handle_in_loop(loop, signals.RELOAD, reload)
    return ended


def _tls(serving: Serving) -> ssl.SSLContext | None:
    if serving.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(serving.certificate, serving.key)
    return context


def _resource_server(options: Options, address: str) -> Any:
    """Made only where it is asked for: it needs a library that others need not have."""
    oauth = options.serving.oauth
    if oauth is None:
        return None
    from perdure.serve.authorities import Authority, OpaqueTokens, SignedTokens
    from perdure.serve.oauth import ResourceServer

    authority = Authority(oauth)
    verifier = (
        OpaqueTokens(authority, options.client_secret)
        if oauth.introspection is not None
        else SignedTokens(oauth, authority)
    )
    return ResourceServer(oauth, options.serving.public_url or address, verifier)


def _own_names() -> tuple[str, ...]:
    """Bound to every address: by the names this machine knows of itself."""
    names = {*LOOPBACK, socket.gethostname(), socket.getfqdn()}
    try:
        names |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        pass
    return tuple(names)
