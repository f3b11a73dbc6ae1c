"""What a 2026 request over HTTP must look like before anybody works on it: its headers say what its body says."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, Final

import msgspec

from perdure.protocol import eras
from perdure.protocol.frames import INVALID_PARAMS, METHOD_NOT_FOUND, Request, members_if_clear, text_if_clear

HEADER_MISMATCH: Final = -32020
STATUS: Final = {
    -32700: 400,
    -32600: 400,
    -32602: 400,
    HEADER_MISMATCH: 400,
    eras.MISSING_CAPABILITY: 400,
    eras.UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
REMOVED: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
ROUTING: Final = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
_WRAPPED: Final = re.compile(r"=\?base64\?(.*)\?=")


class Rejection(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: Any = None


def check(request: Request, headers: list[tuple[bytes, bytes]]) -> Rejection | None:
    """The first thing that is wrong with it."""
    given: dict[bytes, str] = {}
    for name, value in headers:
        if name in ROUTING:
            if name in given:
                return Rejection(HEADER_MISMATCH, f"the header {name.decode()} is there twice: send it once.")
            given[name] = value.decode("latin-1")
    params = members_if_clear(request.params)
    meta = members_if_clear(params.get("_meta")) if "_meta" in params else {}
    missing = [key for key in (eras.META_VERSION, eras.META_CAPABILITIES) if key not in meta]
    if missing:
        return Rejection(
            INVALID_PARAMS, f"params._meta needs {' and '.join(missing)}, as every request of 2026-07-28."
        )
    version = text_if_clear(meta[eras.META_VERSION])
    if version is None or given.get(b"mcp-protocol-version") != version:
        return Rejection(
            HEADER_MISMATCH, "the header mcp-protocol-version must name the version that params._meta names."
        )
    if given.get(b"mcp-method") != request.method:
        return Rejection(HEADER_MISMATCH, "the header mcp-method must name the method of the request.")
    wanted = text_if_clear(params.get(NAMED.get(request.method, "")))
    if wanted is not None and unwrapped(given.get(b"mcp-name")) != wanted:
        return Rejection(
            HEADER_MISMATCH, f"the header mcp-name must be the same as params.{NAMED[request.method]}."
        )
    if version not in eras.MODERN_VERSIONS:
        return unsupported(version)
    if request.method in REMOVED:
        return Rejection(
            METHOD_NOT_FOUND, f"{request.method} is not part of {version}.", {"method": request.method}
        )
    return None


def unsupported(version: str) -> Rejection:
    data = {"supported": list(eras.MODERN_VERSIONS), "requested": version}
    return Rejection(eras.UNSUPPORTED_VERSION, eras.unsupported(version, eras.MODERN_VERSIONS), data)


def unwrapped(value: str | None) -> str | None:
    """A header's value; what does not fit into one comes in base64."""
    if value is None or (found := _WRAPPED.fullmatch(value)) is None:
        return value
    try:
        data = b64decode(found[1], validate=True)
        return data.decode() if b64encode(data).decode() == found[1] else None
    except ValueError:
        return None
