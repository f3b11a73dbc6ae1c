"""A request, its response, and how each kind of response is made. Documents carry an ETag of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str  # as it was sent, still encoded
    query: dict[str, str]
    headers: dict[str, str]  # by lower-case name
    body: bytes = b""


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b""
    headers: dict[str, str] = {}


class Refused(Exception):
    """A request that gets no more than a status and a reason."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


def document(request: Request, make: Callable[[], Any], methods: list[str] | None = None) -> Response:
    """The document, or 304 where the client has it already."""
    if request.method not in ("GET", "HEAD"):
        raise Refused(405, "not here", allow=", ".join(methods or ["GET", "HEAD"]))
    body = msgspec.json.encode(make())
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"content-type": "application/json", "etag": etag, "cache-control": "no-cache"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(304, b"", headers)
    return Response(200, body, headers)


def created(found: object) -> Response:
    return Response(201, msgspec.json.encode(found), {"content-type": "application/json"})


def problem(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    """For readers of RFC 9457 and of `{"error": …}` alike."""
    body = msgspec.json.encode({"title": reason, "status": status, "detail": reason, "error": reason})
    return Response(status, body, {"content-type": "application/problem+json", **(headers or {})})


def page_size(request: Request, usual: int, most: int) -> int:
    given = request.query.get("limit")
    if given is None:
        return usual
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= most:
        raise Refused(422, f"limit is a number from 1 to {most}")
    return int(given)
