"""Who it is that asks: the owner's token, or an access token of the authorization server that the owner named.

What was sent to prove it goes no further: a session knows its caller by a hash, and nothing behind it knows even that.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.http.origin_check import Denied
from perdure.http.server import Headers

if TYPE_CHECKING:
    from perdure.serve.oauth import ResourceServer

REALM: Final = b'Bearer realm="perdure"'
MOST_TOKEN: Final = 16 * 1024


class Caller(msgspec.Struct, frozen=True):
    """`owner` tells one caller from another; it is empty for whoever has the token, or where none is needed."""

    owner: str = ""


class Entrance:
    def __init__(self, token: str | None, resource_server: ResourceServer | None = None) -> None:
        self._token = token.encode() if token is not None else None
        self._oauth = resource_server

    async def admit(self, headers: Headers) -> Caller | Denied:
        if self._token is None and self._oauth is None:
            return Caller()
        given = _bearer(headers)
        if given is not None and self._token is not None and hmac.compare_digest(given, self._token):
            return Caller()
        if self._oauth is not None:
            return await self._oauth.admit(given)
        return Denied(
            401,
            "a token is needed: send the header Authorization: Bearer TOKEN, the token of perdure serve.",
            ((b"www-authenticate", REALM),),
        )


def _bearer(headers: Headers) -> bytes | None:
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or given[0][:7].lower() != b"bearer ":
        return None
    token = given[0][7:].strip()
    return token if len(token) <= MOST_TOKEN else b""
