"""Who may call: the owner's token, an access token of the owner's authorization server, and a rate limit.

A token goes no further than this module. A session knows its caller by a hash; nothing behind the session knows even
that.
"""

from __future__ import annotations

import hmac
from typing import Final, Protocol

import msgspec

from perdure.http.origin_check import Denied
from perdure.http.server import Headers

REALM: Final = b'Bearer realm="perdure"'
MOST_TOKEN: Final = 16 * 1024
MOST_BUCKETS: Final = 20_000


class Caller(msgspec.Struct, frozen=True):
    """`owner` tells OAuth subjects apart; it is empty for the owner's token, and where no token is needed."""

    owner: str = ""


class AccessTokens(Protocol):
    """Who may call with an access token (`serve/oauth.py`)."""

    async def authenticate(self, token: bytes | None) -> Caller | Denied: ...


class TokenAuth:
    """Checks the bearer token of a request. Without a token and an authorization server every request passes."""

    def __init__(self, token: str | None, resource_server: AccessTokens | None = None) -> None:
        self._token = token.encode() if token is not None else None
        self._oauth = resource_server

    async def authenticate(self, headers: Headers) -> Caller | Denied:
        if self._token is None and self._oauth is None:
            return Caller()
        token = _bearer(headers)
        if token is not None and self._token is not None and hmac.compare_digest(token, self._token):
            return Caller()
        if self._oauth is not None:
            return await self._oauth.authenticate(token)
        return Denied(
            401,
            "a token is needed: send the header Authorization: Bearer TOKEN, the token of perdure serve.",
            ((b"www-authenticate", REALM),),
        )


def _bearer(headers: Headers) -> bytes | None:
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1 or values[0][:7].lower() != b"bearer ":
        return None
    token = values[0][7:].strip()
    return token if len(token) <= MOST_TOKEN else b""


class TokenBuckets:
    """A rate limit per key: `rate` requests per second, and `burst` at once after a pause.

    The number of buckets is bounded. The one that was used longest ago is dropped: it is full, or nearly so.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: str, now: float) -> float:
        """Take one token. Returns 0, or the seconds after which one will be there."""
        tokens, filled_at = self._buckets.pop(key, (self._burst, now))
        tokens = min(self._burst, tokens + (now - filled_at) * self._rate)
        is_allowed = tokens >= 1.0
        self._buckets[key] = (tokens - 1.0 if is_allowed else tokens, now)
        if len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if is_allowed else (1.0 - tokens) / self._rate
