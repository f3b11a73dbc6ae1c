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
from perdure.host import catalog_cache
from perdure.host.compose import new_exporter
from perdure.host.console import Console
from perdure.host.launch import specs_of, wrapped_spec
from perdure.host.serve_options import Serving
from perdure.host.settings import Settings
from perdure.host.workspace_trust import untrusted_files
from perdure.http.origin_check import LOOPBACK, Denied, OriginCheck
from perdure.http.server import Headers, HttpServer, Limits, Request
from perdure.platform import signals
from perdure.platform.guardian import Guardian, end_marked
from perdure.protocol.mounts import MountSpec
from perdure.serve import hooks, metrics_endpoint, server_card, unix_transport
from perdure.serve.auth import Caller, TokenAuth, TokenBuckets
from perdure.serve.logs import to_console
from perdure.serve.places import attach_path
from perdure.serve.registries import Registries
from perdure.serve.responses import ErrorResponse, error_response, respond, retry_later
from perdure.serve.server_pool import ServerPool
from perdure.serve.session_table import SessionTable
from perdure.serve.store import InUse, Store
from perdure.serve.streamable import Streamable
from perdure.storage.event_log import EventLog
from perdure.storage.user_dirs import private_dir

PREDECESSOR_S: Final = 5.0
CLOSE_S: Final = 8.0  # for servers to end, and a store
SESSION: Final = b"mcp-session-id"
UNAVAILABLE: Final = 4


class Options(msgspec.Struct, frozen=True):
    """`client_secret` is that of `client-id`, for introspection at the authorization server."""

    token: str | None = None
    wrap: tuple[str, ...] = ()
    serving: Serving = Serving()
    client_secret: str = ""


Pages = Callable[[Request], Awaitable[None]]
Front = Callable[[SessionTable, Options], Pages]
ENDPOINTS: Final = ("/mcp", "/healthz", "/metrics")


class App:
    """The handler of every request. `front` makes the pages for people, which have their own sign-in."""

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
        self._address = address
        host = self._serving.host
        hosts = (*LOOPBACK, host) if host not in ("0.0.0.0", "::") else _own_names()
        self._origin_check = OriginCheck(hosts, port, self._serving.public_url)
        self._oauth = _resource_server(options, address)
        self._auth = TokenAuth(options.token, self._oauth)
        self._metadata_paths = self._oauth.metadata_paths if self._oauth is not None else ()
        limits = self._serving.limits
        self._session_rate = TokenBuckets(limits.session_rate, limits.session_rate * 2)
        self._address_rate = TokenBuckets(limits.address_rate, limits.address_rate * 2)
        self._specs: dict[str, dict[str, MountSpec]] = {}
        self._registries = Registries()
        self.sessions: SessionTable | None = None
        self._mcp: Streamable | None = None
        self._hooks: hooks.Hooks | None = None
        self._front = front
        self._pages: Pages | None = None
        # Access tokens are for /mcp; pages for people accept the owner's token only.
        self._shows_pages = front is not None and (self._oauth is None or options.token is not None)

    def start(self, guardian: Guardian) -> None:
        limits = self._settings.limits
        loop = asyncio.get_running_loop()
        server_pool = ServerPool(
            guardian, os.environ, limits.frame_bytes, limits.outbox_bytes, self._registries, loop=loop
        )
        server_pool.reap_in(loop)
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
        """End the live pages of the dashboard: a stop does not wait for them."""
        self.loaded.is_ending = True

    def reload(self) -> None:
        """Start every server anew, as it is installed now."""
        self.loaded.reload()

    async def __call__(self, request: Request) -> None:
        try:
            await self._route(request)
        except ErrorResponse as error:
            await respond(request, error.status, error.body, error.headers)

    async def _route(self, request: Request) -> None:
        path = request.path
        is_card = path == server_card.PATH
        if (denied := self._origin_check.check(request.headers, any_origin=is_card)) is not None:
            raise _response_to(denied)
        self._check_rate(request)
        if is_card:
            await server_card.respond_with_card(request, self._card())
            return
        is_hook = path.startswith(hooks.PREFIX)
        if self._shows_pages and not is_hook and path not in (*ENDPOINTS, *self._metadata_paths):
            assert self._pages is not None
            await self._pages(request)
            return
        is_public = path == "/healthz" or path in self._metadata_paths
        owner = "" if is_public else await self._authenticate(request)
        if path == "/mcp" and self._mcp is not None:
            await self._mcp(request, owner)
        elif is_hook and self._hooks is not None:
            await self._hooks(request, owner)
        elif request.method in ("GET", "HEAD") and (document := self._document(path)) is not None:
            await respond(request, 200, *document)
        else:
            raise error_response(404, "there is nothing here")

    async def _authenticate(self, request: Request) -> str:
        """The owner of the session; empty for the owner's token, and where no token is needed."""
        caller = await self._auth.authenticate(request.headers)
        if isinstance(caller, Caller):
            return caller.owner
        raise _response_to(caller)

    def _check_rate(self, request: Request) -> None:
        """By the session where there is one, else by the address."""
        session, now = request.header(SESSION), time.monotonic()
        if session in self.loaded.named:
            wait = self._session_rate.take(session, now)
        else:
            wait = self._address_rate.take(request.client[0], now)
        if wait:
            raise retry_later(429, "too many requests: wait as long as Retry-After says.", "too_fast", wait)

    def _document(self, path: str) -> tuple[bytes, Headers] | None:
        if path == "/healthz":
            return self._health(), []
        if path == "/metrics" and self._serving.metrics:
            pool = self.loaded.server_pool
            text = metrics_endpoint.render(
                self.loaded.clients,
                self.loaded.past,
                processes=len(pool.running),
                faults=pool.faults,
                started=self._started,
            )
            return text, [(b"content-type", metrics_endpoint.CONTENT_TYPE)]
        if self._oauth is not None and path in self._metadata_paths:
            return self._oauth.metadata(), [(b"cache-control", b"max-age=3600")]
        return None

    def _card(self) -> bytes:
        """A wrapped server has a card from its first start on: only then its name and version are known."""
        info = server_card.ServerInfo()
        if self._options.wrap:
            (spec,) = self._specs_of("").values()
            catalog = catalog_cache.load(spec)
            if catalog is None:
                raise error_response(404, "the wrapped server has not been started yet")
            wrapped = msgspec.json.decode(catalog.server_info, type=dict[str, Any])
            info = server_card.ServerInfo(
                *(str(wrapped.get(key) or "") for key in ("name", "version", "title", "description"))
            )
        needs_token = self._options.token is not None and self._oauth is None
        return server_card.build_card(
            info, self._serving.public_url or self._address, needs_token=needs_token
        )

    @property
    def loaded(self) -> SessionTable:
        assert self.sessions is not None
        return self.sessions

    def _health(self) -> bytes:
        document: dict[str, Any] = {
            "status": "ok",
            "version": __version__,
            "uptime_s": round(time.time() - self._started, 1),
            "sessions": len(self.loaded.named),
            "servers": len(self.loaded.server_pool.running),
        }
        return msgspec.json.encode(document)

    def _workspace_of(self, request: Request) -> str:
        """The workspace that a URL names, by path or by name; empty for all of them."""
        name = parse_qs(request.query.decode("latin-1")).get("workspace", [""])[-1]
        if (workspace := self.loaded.workspace_of(name)) is None:
            raise error_response(404, "there is no such workspace here")
        return workspace

    def _specs_of(self, workspace: str) -> dict[str, MountSpec]:
        if workspace not in self._specs:
            if self._options.wrap:
                specs = wrapped_spec(
                    os.path.basename(self._options.wrap[0]), self._options.wrap, self._settings
                )
            else:
                chosen = (workspace,) if workspace else self._settings.workspaces
                root = self._settings.settings_root or self._settings.workspaces[0]
                settings = msgspec.structs.replace(self._settings, workspaces=chosen, settings_root=root)
                specs = specs_of(settings)
                self._registries.open(workspace, settings, specs)
            self._specs[workspace] = specs
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
    """Serve until a signal. `address` and `banner` are printed when requests are answered."""
    serving = options.serving
    bound, port = listening.getsockname()[:2]
    name = f"sessions-{bound.replace(':', '.')}-{port}.db"  # two processes may use one port, at two addresses
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
        end_marked(mark, PREDECESSOR_S)  # servers of a predecessor that was killed
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


def _response_to(denied: Denied) -> ErrorResponse:
    return ErrorResponse(
        denied.status, error_response(denied.status, denied.reason).body, list(denied.headers)
    )


def _handle_signals(app: App, most_s: float) -> asyncio.Event:
    """The event that a signal asks this process to end. The system kills the process `most_s` seconds later."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    had_terminal = os.isatty(0)

    def end() -> None:
        signals.end_after(most_s)
        app.end()
        ended.set()

    def reload() -> None:
        """The system sends the same signal when the terminal is closed."""
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
    """Imported only where it is used: it needs an optional library."""
    oauth = options.serving.oauth
    if oauth is None:
        return None
    from perdure.serve.oauth import Authority, OpaqueTokens, ResourceServer, SignedTokens

    authority = Authority(oauth)
    verifier = (
        OpaqueTokens(authority, options.client_secret)
        if oauth.introspection is not None
        else SignedTokens(oauth, authority)
    )
    return ResourceServer(oauth, options.serving.public_url or address, verifier)


def _own_names() -> tuple[str, ...]:
    """The names of this machine, for a server that listens on every address."""
    names = {*LOOPBACK, socket.gethostname(), socket.getfqdn()}
    try:
        names |= {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        pass
    return tuple(names)
