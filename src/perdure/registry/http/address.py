"""The address of a catalog: a parsed URL, and the rule which URLs may be used.

Cleartext http is for loopback only, unless it is allowed explicitly; a host is judged by its spelling, without a DNS lookup
(MUST 11). Credentials are separated from the URL and appear in no message (MUST 4).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from perdure.registry.errors import InvalidEntry

DEFAULT_SCOPE: Final = "default"
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029\ud800-\udfff]")


class InvalidAddress(InvalidEntry):
    """A URL that cannot be used; it is not repeated, since it may hold a password."""

    code = "invalid_address"


class Address(msgspec.Struct, frozen=True):
    """A URL without its credentials. `userinfo` is `user:password`; a token takes precedence."""

    scheme: str
    host: str
    port: int
    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    userinfo: str = ""

    @property
    def origin(self) -> str:
        default = {"https": 443, "http": 80}[self.scheme]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == default else f":{self.port}")

    @property
    def shown(self) -> str:
        """What a message may show."""
        return self.origin + self.path

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def target(self) -> str:
        """The target of a request line."""
        return (self.path or "/") + (f"?{urlencode(self.query, quote_via=quote)}" if self.query else "")

    def below(self, *parts: str, query: dict[str, str] | None = None) -> Address:
        """An address below this one; each part is encoded, so that a name cannot change the path."""
        path = self.path.rstrip("/") + "".join(f"/{quote(part, safe='')}" for part in parts)
        return msgspec.structs.replace(self, path=path, query=tuple((query or {}).items()))

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def parameter(self, name: str) -> str | None:
        return next((value for key, value in self.query if key == name), None)


def read_address(url: str) -> Address:
    """Raises InvalidAddress for anything but an http or https URL."""
    if _UNFIT.search(url):
        raise InvalidAddress("the URL holds a character that no URL can hold")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise InvalidAddress("the URL cannot be read") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidAddress("the URL is not http or https", hint="https://host[:port]/")
    userinfo = parts.netloc.rpartition("@")[0]
    return Address(
        scheme=parts.scheme,
        host=_ascii(host),
        port=port if port is not None else {"https": 443, "http": 80}[parts.scheme],
        path=quote(parts.path, safe="/%:@!$&'()*+,;=~-._"),
        query=tuple(parse_qsl(parts.query, keep_blank_values=True)),
        userinfo=unquote(userinfo),
    )


def _ascii(host: str) -> str:
    try:
        return host.encode("idna").decode() if not host.isascii() else host
    except UnicodeError:
        raise InvalidAddress("the URL's host cannot be read") from None


def check_address(address: Address, allow_http: bool) -> Address:
    if address.scheme == "http" and not allow_http and not address.is_loopback:
        raise InvalidAddress(
            f"{address.origin} is not encrypted",
            hint="use https, or set PERDURE_ALLOW_HTTP=1 if the network in between is yours",
        )
    return address


def is_loopback(host: str) -> bool:
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
