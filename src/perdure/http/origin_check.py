"""Host and Origin of a request: under which names a server may be called, and from which web pages.

A web page can reach a server on this machine under a name of the page's own (DNS rebinding). A browser says the name
in `Host` and the page in `Origin`, so both are checked before anything else.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from perdure.http.server import Headers

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Denied(msgspec.Struct, frozen=True):
    """The response to a request that no handler sees."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class OriginCheck:
    """`hosts` are the names of this server and `port` is its own; `public_url` is its address behind a proxy."""

    def __init__(self, hosts: tuple[str, ...], port: int, public_url: str | None = None) -> None:
        own = {(host.lower(), port) for host in hosts}
        self._hosts = frozenset(host for host, _ in own)
        self._origins = frozenset((scheme, *address) for scheme in DEFAULT_PORTS for address in own)
        if public_url is not None and (public := _origin(urlsplit(public_url))) is not None:
            self._hosts |= {public[1]}
            self._origins |= {public}

    def check(self, headers: Headers, *, any_origin: bool = False) -> Denied | None:
        """`any_origin` is for documents that pages of every site may read."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            return Denied(
                421,
                "the Host header is not a name of this server: use the address that it printed at its start "
                "(behind a proxy: perdure serve --public-url).",
            )
        origins = [value for name, value in headers if name == b"origin"]
        if not any_origin and any(not self._is_own(origin) for origin in origins):
            return Denied(
                403, "the Origin header is that of another site: only pages of this server may call it."
            )
        return None

    def _is_own(self, origin: bytes) -> bool:
        """Another port of this machine is another origin."""
        try:
            return _origin(urlsplit(origin.decode("latin-1"))) in self._origins
        except ValueError:
            return False


def _origin(parts: SplitResult) -> tuple[str, str, int] | None:
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
    return parts.scheme, parts.hostname, port


def _hostname(value: bytes) -> str:
    """The name in a Host header, without its port; empty where it cannot be parsed."""
    try:
        return (urlsplit("//" + value.decode("latin-1")).hostname or "").lower()
    except ValueError:
        return ""
