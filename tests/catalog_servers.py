"""HTTP servers on loopback that a test scripts: real sockets, whatever bytes it takes, and a record of what was asked."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

OFFICIAL = "io.modelcontextprotocol.registry/official"


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def parts(self) -> list[str]:
        return [unquote(part) for part in self.path.strip("/").split("/")]

    def json(self) -> Any:
        return json.loads(self.body)


Answer = bytes | Iterable[bytes]


def reply(status: int, body: object = b"", **headers: str) -> bytes:
    """A whole reply; anything but bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"content-type": "application/json", "content-length": str(len(data)), "connection": "close"}
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + data


@dataclass
class Scripted:
    """Answers by a function, which a test may change as it goes."""

    answer: Callable[[Asked], Answer]
    port: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def scripted(answer: Callable[[Asked], Answer]) -> Iterator[Scripted]:
    found = Scripted(answer)
    listener = socket.create_server(("127.0.0.1", 0))
    found.port = listener.getsockname()[1]
    threading.Thread(target=_accept, args=(listener, found), daemon=True).start()
    try:
        yield found
    finally:
        # Closing alone would leave the thread in accept.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, server: Scripted) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, server), daemon=True).start()


def _serve(connection: socket.socket, server: Scripted) -> None:
    with connection:
        connection.settimeout(30)
        try:
            asked = _read(connection)
            if asked is None:
                return
            server.asked.append(asked)
            answer = server.answer(asked)
            for piece in [answer] if isinstance(answer, bytes) else answer:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            return


def _read(connection: socket.socket) -> Asked | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    parts = urlsplit(target)
    return Asked(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


def record(name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """A record as the official API gives it."""
    meta = {
        "status": more.pop("status", "active"),
        "publishedAt": more.pop("published_at", "2026-01-01T00:00:00Z"),
        "updatedAt": more.pop("updated_at", "2026-01-01T00:00:00Z"),
        "isLatest": more.pop("is_latest", True),
    }
    server = {
        "name": name,
        "description": more.pop("description", f"about {name}"),
        "version": version,
        **more,
    }
    return {"server": server, "_meta": {OFFICIAL: meta}}


def official(records: list[dict[str, Any]], prefix: str = "v0.1") -> Callable[[Asked], bytes]:
    """The read API over these records, which a test may change; a cursor is a place in the list."""

    def answer(asked: Asked) -> bytes:
        parts = asked.parts
        if parts[0] != prefix or parts[1:2] != ["servers"]:
            return reply(404, {"error": "no such endpoint"}) if parts[0] == prefix else reply(404, b"nothing")
        if len(parts) == 2:
            return _page(asked, records)
        mine = [one for one in records if one["server"]["name"] == parts[2]]
        if parts[3:] == ["versions"] and mine:
            return reply(200, {"servers": mine, "metadata": {"count": len(mine)}})
        for one in mine:
            latest = one["_meta"][OFFICIAL]["isLatest"] and parts[4] == "latest"
            if latest or one["server"]["version"] == parts[4]:
                return reply(200, one)
        return reply(404, {"title": "Not Found", "status": 404, "detail": "Server not found"})

    return answer


def _page(asked: Asked, records: list[dict[str, Any]]) -> bytes:
    limit = int(asked.query.get("limit", "30"))
    if not 1 <= limit <= 100:
        return reply(422, {"title": "Unprocessable Entity", "status": 422})
    since = asked.query.get("updated_since", "")
    meta = [one["_meta"][OFFICIAL] for one in records]
    found = [
        one
        for one, about in zip(records, meta, strict=True)
        if (about["isLatest"] or asked.query.get("version") != "latest")
        and (not since or about["updatedAt"] >= since)
        and (since or about["status"] != "deleted")
        and asked.query.get("search", "").lower() in one["server"]["name"].lower()
    ]
    start = int(asked.query.get("cursor", "0"))
    page = found[start : start + limit]
    metadata: dict[str, Any] = {"count": len(page)}
    if start + limit < len(found):
        metadata["nextCursor"] = str(start + limit)
    return reply(200, {"servers": page, "metadata": metadata})
