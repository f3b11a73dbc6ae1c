"""Who may speak to us: the name we are called by, the page that asks, and the token."""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import urlsplit

import msgspec

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

Headers = list[tuple[bytes, bytes]]


class Denied(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """`hosts` are the names under which this server may be called; a page must come from one of them."""

    def __init__(self, hosts: tuple[str, ...], token: str | None) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token.encode() if token is not None else None

    def check(self, headers: Headers, *, needs_token: bool = True) -> Denied | None:
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            return Denied(421, "this server is not called by that name")
        origins = [value for name, value in headers if name == b"origin"]
        if any(not self._is_ours(origin) for origin in origins):
            return Denied(403, "requests from other pages are refused")
        if needs_token and self._token is not None and not self._has_token(headers):
            return Denied(401, "a token is needed", ((b"www-authenticate", b'Bearer realm="perdure"'),))
        return None

    def _is_ours(self, origin: bytes) -> bool:
        try:
            parts = urlsplit(origin.decode("latin-1"))
            return parts.scheme in ("http", "https") and (parts.hostname or "") in self._hosts
        except ValueError:
            return False

    def _has_token(self, headers: Headers) -> bool:
        assert self._token is not None
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1 or given[0][:7].lower() != b"bearer ":
            return False
        return hmac.compare_digest(given[0][7:].strip(), self._token)


def _hostname(value: bytes) -> str:
    """The name in a Host header, without its port; nothing where it makes no sense."""
    try:
        return (urlsplit("//" + value.decode("latin-1")).hostname or "").lower()
    except ValueError:
        return ""
