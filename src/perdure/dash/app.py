"""The dashboard's door: which page an address means, who may see it, who may change something.

| | needs |
|---|---|
| a page, a live stream | the token where one is set: as Bearer, or by signing in |
| a change | that, from one of our own pages, with the value that only our pages know |
| a static file | nothing: there are three, the same for everyone |

Live updates: a page's address under `/live` is a stream of its parts, each sent when it has changed.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from perdure.dash import layout
from perdure.dash.components import button
from perdure.dash.context import PageContext
from perdure.dash.html import Markup
from perdure.dash.pages import (
    changes,
    drafts,
    events,
    handoffs,
    journal,
    overview,
    registry,
    reservations,
    servers,
    sessions,
    state,
    timeline,
    tools,
)
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import (
    SAFE,
    Ask,
    NotThere,
    Page,
    Reply,
    answer,
    asked,
    cookie,
    form,
    is_same_origin,
    moved,
)
from perdure.http.server import Request
from perdure.serve.responses import STREAM

LIVE_S: Final = 1.0
PING_EVERY: Final = 15
MOST_STREAMS: Final = 64
WRONG_TOKEN_S: Final = 0.5

Show = Callable[[PageContext, Ask], Awaitable[Page]]
Change = Callable[[PageContext, Ask], Awaitable[str]]

ALWAYS: Final[dict[str, Show]] = {
    "/": overview.overview,
    "/events": events.events,
    "/tools": tools.tools,
    "/mounts": servers.servers,
    "/mounts/server": servers.server,
    "/mounts/disable": servers.disable,
    "/sessions": sessions.sessions,
    "/sessions/session": sessions.session,
}
BUILT_IN: Final[dict[str, Show]] = {
    "/timeline": timeline.timeline,
    "/timeline/change": timeline.change,
    "/timeline/rewind": timeline.rewind,
    "/journal": journal.journal,
    "/journal/entry": changes.entry,
    "/journal/undo": changes.undo,
    "/journal/restore": changes.restore,
    "/file": changes.file,
    "/file/compare": changes.compare,
    "/state": state.state,
    "/state/key": state.key,
    "/reservations": reservations.reservations,
    "/handoffs": handoffs.handoffs,
    "/drafts": drafts.drafts,
    "/drafts/draft": drafts.draft,
    "/registry": registry.registry,
}
CHANGES: Final[dict[str, Change]] = {
    "/mounts/order": servers.order,
    "/timeline/rewind": timeline.rewind_now,
    "/journal/undo": changes.undo_now,
    "/journal/restore": changes.restore_now,
    "/drafts/discard": drafts.discard,
    "/reservations/release": reservations.release,
    "/registry/switch": registry.switch,
}
OF_BUILT_IN: Final = frozenset({*BUILT_IN, *CHANGES} - {"/mounts/order"})
NOT_FOUND: Final = "There is no page at this address."
FILES: Final = {
    "/static/dash.css": ("dash.css", b"text/css; charset=utf-8"),
    "/static/dash.js": ("dash.js", b"text/javascript; charset=utf-8"),
    "/static/icon.svg": ("icon.svg", b"image/svg+xml"),
}


class Dashboard:
    def __init__(self, context: PageContext, token: str | None) -> None:
        self.context = context
        self._token = token.encode() if token is not None else None
        # The browser never keeps the token itself: a cookie goes to every port of this machine.
        self._pass = secrets.token_urlsafe(24)
        self._turn = asyncio.Lock()
        self._streams = 0
        folder = Path(__file__).with_name("static")
        self._files = {
            path: Reply(200, (folder / name).read_bytes(), kind=kind, cache=b"no-cache")
            for path, (name, kind) in FILES.items()
        }

    async def __call__(self, request: Request) -> None:
        path = request.path
        if request.method == "GET" and path.startswith("/live/") and self._may_see(request):
            await self._live(request)
            return
        if request.method in ("GET", "HEAD"):
            reply = await self._read(request, path)
        elif request.method == "POST":
            reply = await self._post(request, path)
        else:
            reply = Reply(405, b"", ((b"allow", b"GET, HEAD, POST"),))
        await answer(request, reply)

    # --- reading ---------------------------------------------------------------------------------------------

    async def _read(self, request: Request, path: str) -> Reply:
        if path in self._files:
            return self._files[path]
        if path == "/sign-in" and self._token is not None:
            return Reply(200, layout.sign_in(self.context.csrf, ""))
        if not self._may_see(request):
            return Reply(401) if path.startswith("/live/") else moved("/sign-in")
        return self._framed(await self._page(asked(request, path)), path)

    async def _page(self, ask: Ask) -> Page:
        show = ALWAYS.get(ask.path) or BUILT_IN.get(ask.path)
        try:
            if show is None:
                raise NotThere
            if self.context.is_wrapped and ask.path in BUILT_IN:
                return layout.failure(
                    "Not here", "A wrapped server is served without the built-in tools.", 404
                )
            return await show(self.context, ask)
        except NotThere:
            return layout.failure("Not found", NOT_FOUND, 404)
        except ToolFailed as failed:
            return layout.failure("That did not work", failed.sentence, 409)

    def _framed(self, page: Page, path: str) -> Reply:
        return Reply(page.status, layout.whole(page, path, self.context, signs_out=self._signs_out()))

    def _signs_out(self) -> Markup | None:
        return button(self.context, "Sign out", "/sign-out", ()) if self._token is not None else None

    async def _live(self, request: Request) -> None:
        ask = asked(request, request.path.removeprefix("/live"))
        if self._streams >= MOST_STREAMS:
            await answer(request, Reply(503))
            return
        self._streams += 1
        try:
            await request.start(200, [*STREAM, *SAFE])
            await self._follow(ask, request)
            await request.end()
        finally:
            self._streams -= 1

    async def _follow(self, ask: Ask, request: Request) -> None:
        """Every second the parts that changed, and now and then a sign of life."""
        sent: dict[str, str] = {}
        quiet = 0
        while not request.is_lost and not self.context.sessions.is_ending:
            page = await self._page(ask)
            new = {part.id: str(part.content) for part in page.parts if sent.get(part.id) != part.content}
            quiet = 0 if new else quiet + 1
            if new:
                sent |= new
                await request.write(b"data: " + msgspec.json.encode(new) + b"\n\n")
            elif quiet % PING_EVERY == 0:
                await request.write(b": still there\n\n")
            await asyncio.wait([request.lost], timeout=LIVE_S)

    # --- changing --------------------------------------------------------------------------------------------

    async def _post(self, request: Request, path: str) -> Reply:
        given = await form(request)
        if given is None:
            return Reply(413)
        if not is_same_origin(request) or not _same(given.get("csrf"), self.context.csrf):
            page = layout.failure("Refused", "Open the page again and repeat this from there.", 403)
            return self._framed(page, "/") if self._may_see(request) else Reply(403)
        if path == "/sign-in" and self._token is not None:
            return await self._sign_in(request, given.get("token"))
        if not self._may_see(request):
            return moved("/sign-in")
        if path == "/sign-out" and self._token is not None:
            return moved("/sign-in", self._cookie(request, "", "; Max-Age=0"))
        try:
            if path not in CHANGES or (self.context.is_wrapped and path in OF_BUILT_IN):
                raise NotThere
            return moved(await CHANGES[path](self.context, given))
        except NotThere:
            return self._framed(layout.failure("Not found", NOT_FOUND, 404), path)
        except ToolFailed as failed:
            page = layout.failure("That did not work", failed.sentence, 409)
            return self._framed(page, path)

    # --- who it is -------------------------------------------------------------------------------------------

    async def _sign_in(self, request: Request, token: str) -> Reply:
        assert self._token is not None
        if not _same(token.strip(), self._token.decode()):
            async with self._turn:  # one wrong token at a time, however many are tried at once
                await asyncio.sleep(WRONG_TOKEN_S)
            return Reply(403, layout.sign_in(self.context.csrf, "That is not the token."))
        return moved("/", self._cookie(request, self._pass))

    def _may_see(self, request: Request) -> bool:
        if self._token is None:
            return True
        bearer = request.header(b"authorization")
        if bearer[:7].lower() == "bearer " and _same(bearer[7:].strip(), self._token.decode()):
            return True
        return _same(cookie(request, _cookie_name(request)), self._pass)

    def _cookie(self, request: Request, value: str, more: str = "") -> tuple[bytes, bytes]:
        secure = "; Secure" if request.is_tls else ""
        said = f"{_cookie_name(request)}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}"
        return (b"set-cookie", said.encode())


def _cookie_name(request: Request) -> str:
    """Ports share a host's cookies: each server has its own."""
    return f"perdure_{request.server_port}"


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), known.encode("utf-8", "replace"))
