"""The server card at `/mcp/server-card` (SEP-2127): name, version and address of this server, for clients not yet connected.

It lists no tools and no secrets, and needs no token. A web page of any site may read it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from perdure import __version__
from perdure.http.server import Headers, Request
from perdure.protocol.eras import SUPPORTED_VERSIONS

PATH: Final = "/mcp/server-card"
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
DESCRIPTION: Final = "One MCP server that a coding agent can trust with its work"
TOKEN_VARIABLE: Final = "PERDURE_TOKEN"
MOST_TEXT: Final = 100
CORS: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
]


class ServerInfo(msgspec.Struct, frozen=True):
    """`serverInfo` as a client gets it after it has connected."""

    name: str = "perdure"
    version: str = __version__
    title: str = "Perdure"
    description: str = DESCRIPTION


def build_card(info: ServerInfo, url: str, *, needs_token: bool) -> bytes:
    """`url` is the one of `/mcp` that clients use."""
    remote: dict[str, Any] = {
        "type": "streamable-http",
        "url": url,
        "supportedProtocolVersions": list(SUPPORTED_VERSIONS),
    }
    if needs_token:
        token = {"description": "The token of perdure serve.", "isRequired": True, "isSecret": True}
        value = f"Bearer {{{TOKEN_VARIABLE}}}"
        remote["headers"] = [
            {"name": "Authorization", "value": value, "isSecret": True, "variables": {TOKEN_VARIABLE: token}}
        ]
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", info.name)[:MOST_TEXT] or "server"
    title = (info.title or info.name)[:MOST_TEXT]
    card = {
        "$schema": SCHEMA,
        "name": f"{_namespace(url)}/{name}",
        "version": info.version[:255],
        "description": (info.description or title)[:MOST_TEXT],
        **({"title": title} if title else {}),
        "remotes": [remote],
    }
    return msgspec.json.encode(card)


async def respond_with_card(request: Request, card: bytes) -> None:
    """With an ETag, so that a client which has the card already gets 304."""
    etag = b'"%s"' % hashlib.sha256(card).hexdigest()[:32].encode()
    headers: Headers = [
        *CORS,
        (b"content-type", b"application/mcp-server-card+json"),
        (b"cache-control", b"public, max-age=3600"),
        (b"etag", etag),
    ]
    if request.method == "OPTIONS":
        await request.respond(204, b"", CORS)
    elif request.method not in ("GET", "HEAD"):
        await request.respond(405, b"", [(b"allow", b"GET, HEAD, OPTIONS"), *CORS])
    elif etag.decode() in request.header(b"if-none-match"):
        await request.respond(304, b"", headers)
    else:
        await request.respond(200, card, headers)


def _namespace(url: str) -> str:
    """The host name in reverse, as names of servers have it; `local` for an IP address."""
    host = urlsplit(url).hostname or ""
    if not re.fullmatch(r"[a-z0-9.-]*[a-z][a-z0-9.-]*", host):
        return "local"
    return ".".join(reversed(host.strip(".").split(".")))
