"""Under which names we may be called, and from which pages: what a browser says about itself, checked first."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
USUAL: Final = {"http": 80, "https": 443}

Headers = list[tuple[bytes, bytes]]


class Denied(msgspec.Struct, frozen=True):
    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


class Guard:
    """`hosts` are the names of this server and `port` is its own; `public_url` is how others reach it, by a proxy."""

    def __init__(self, hosts: tuple[str, ...], port: int, public_url: str | None = None) -> None:
        own = {(host.lower(), port) for host in hosts}
        self._hosts = frozenset(host for host, _ in own)
        self._origins = frozenset((scheme, *one) for scheme in USUAL for one in own)
        if public_url is not None and (known := _origin(urlsplit(public_url))) is not None:
            self._hosts |= {known[1]}
            self._origins |= {known}

    def check(self, headers: Headers) -> Denied | None:
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            return Denied(
                421,
                "the Host header is not a name of this server: use the address that perdure serve printed, or --public-url.",
            )
        origins = [value for name, value in headers if name == b"origin"]
        if any(not self._is_ours(origin) for origin in origins):
            return Denied(
                403, "the Origin header is that of another site: only pages of this server may call it."
            )
        return None

    def _is_ours(self, origin: bytes) -> bool:
        """A page of another port of this machine is another page."""
        try:
            return _origin(urlsplit(origin.decode("latin-1"))) in self._origins
        except ValueError:
            return False


def _origin(parts: SplitResult) -> tuple[str, str, int] | None:
    if parts.scheme not in USUAL or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port if parts.port is not None else USUAL[parts.scheme]


def _hostname(value: bytes) -> str:
    """The name in a Host header, without its port; nothing where it makes no sense."""
    try:
        return (urlsplit("//" + value.decode("latin-1")).hostname or "").lower()
    except ValueError:
        return ""
