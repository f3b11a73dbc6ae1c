"""What a browser asks and gets: queries, forms, pages, and the headers that keep them safe."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from perdure.dash.html import Markup
from perdure.http.server import BodyTooLarge, Disconnected, Request

MOST_FORM_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 500
FORM_S: Final = 60.0
HTML: Final = b"text/html; charset=utf-8"
SAFE: Final = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer a browser hides where our own forms come from
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


Fields = list[tuple[str, str]]


class Ask(msgspec.Struct, frozen=True):
    """A request for a page or a change: its path, and the fields of its query or form."""

    path: str
    fields: Fields = []

    def get(self, name: str, default: str = "") -> str:
        """The last value, without spaces around it; the default where it is empty."""
        return self.exact(name).strip() or default

    def exact(self, name: str) -> str:
        return next((value for key, value in reversed(self.fields) if key == name), "")

    def every(self, name: str) -> list[str]:
        """All values that are not empty, each once."""
        return list(dict.fromkeys(value for key, value in self.fields if key == name and value))


class Part(msgspec.Struct, frozen=True):
    """A piece of a page that is replaced as a whole when it changes. With `news` the rows of one that is being read stay
    where they are, and a bar says how many of these came."""

    id: str
    content: Markup
    news: str = ""


class Page(msgspec.Struct, frozen=True):
    title: str
    parts: tuple[Part, ...]
    status: int = 200
    is_live: bool = True


class Reply(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: bytes = HTML
    cache: bytes = b"no-store"


class NotThere(Exception):
    """No page has this address."""


def asked(request: Request, path: str) -> Ask:
    return Ask(path, fields(request.query))


def fields(data: bytes) -> Fields:
    """Of a query or a form; none where it cannot be read as one."""
    try:
        return parse_qsl(data.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return []


async def form(request: Request) -> Ask | None:
    """The form in the body of a request; None where it is too large or did not arrive in time."""
    try:
        return Ask(request.path, fields(await request.read_all(MOST_FORM_BYTES, FORM_S)))
    except (BodyTooLarge, TimeoutError, Disconnected):
        return None


def cookie(request: Request, name: str) -> str:
    try:
        cookies = SimpleCookie(request.header(b"cookie"))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def is_same_origin(request: Request) -> bool:
    """Whether one of our own pages sent this. A browser always says where a form comes from."""
    site, origin = request.header(b"sec-fetch-site"), request.header(b"origin")
    if site and site != "same-origin":
        return False
    return bool(origin) and urlsplit(origin).netloc.lower() == request.header(b"host").lower()


async def answer(request: Request, reply: Reply) -> None:
    own = [(b"content-type", reply.kind), (b"cache-control", reply.cache)]
    await request.respond(reply.status, reply.body, [*own, *SAFE, *reply.headers])


def moved(to: str, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(303, b"", ((b"location", to.encode()), *headers))
