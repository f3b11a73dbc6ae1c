"""A protected resource by RFC 9728: which authorization server it trusts, and whom it lets in with its tokens.

    no token, or one that proves nothing   401, saying where the metadata is
    one for another audience               401 invalid_token
    one without the scopes                 403 insufficient_scope
    the authorization server is silent     503, and nobody is let in

A token is checked as what it is (a signed JWT, or something only its issuer can read) and then forgotten but for a
hash, under which the answer is remembered for a moment.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from perdure.host.serve_options import OAuth
from perdure.http.origin_check import Denied
from perdure.registry.http.address import read_address
from perdure.serve.entrance import Caller

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
REMEMBERED_S: Final = 30.0
MOST_REMEMBERED: Final = 4096
RETRY_S: Final = 5


class Untrusted(Exception):
    """A token that proves nothing; the reason is for its sender and quotes nothing of it."""


class Unanswered(Exception):
    """The authorization server cannot be asked now."""


class Verifier(Protocol):
    async def claims(self, token: str) -> Mapping[str, Any]:
        """What a token says, once it is known to be its issuer's. Raises Untrusted or Unanswered."""


class _Known(msgspec.Struct, frozen=True):
    owner: str
    scopes: frozenset[str]
    until: float


class ResourceServer:
    """`resource` is the address by which clients know us: the audience of their tokens, unless others are named."""

    def __init__(self, oauth: OAuth, resource: str, verifier: Verifier) -> None:
        self._oauth = oauth
        self._resource = resource
        self._verifier = verifier
        self._audience = frozenset(oauth.audience or (resource, resource.rstrip("/")))
        self._known: dict[bytes, _Known] = {}
        address = read_address(resource)
        self._metadata_url = address.origin + WELL_KNOWN + address.path.rstrip("/")

    @property
    def metadata_paths(self) -> tuple[str, str]:
        """Beside the resource, and at the root, where older clients look."""
        return WELL_KNOWN + read_address(self._resource).path.rstrip("/"), WELL_KNOWN

    def metadata(self) -> bytes:
        found: dict[str, Any] = {
            "resource": self._resource,
            "authorization_servers": [self._oauth.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Perdure",
        }
        if self._oauth.scopes:
            found["scopes_supported"] = list(self._oauth.scopes)
        return msgspec.json.encode(found)

    async def admit(self, token: bytes | None) -> Caller | Denied:
        if token is None:
            return self._denied(401, "a token is needed")
        try:
            known = await self._checked(token)
        except Untrusted as why:
            return self._denied(401, str(why), "invalid_token")
        except Unanswered as why:
            return Denied(503, str(why), ((b"retry-after", str(RETRY_S).encode()),))
        missing = [scope for scope in self._oauth.scopes if scope not in known.scopes]
        if missing:
            return self._denied(403, f"the token lacks the scope {' '.join(missing)}", "insufficient_scope")
        return Caller(known.owner)

    def _denied(self, status: int, reason: str, error: str = "") -> Denied:
        parts = ['Bearer realm="perdure"', f'resource_metadata="{self._metadata_url}"']
        if error:
            parts += [f'error="{error}"', f'error_description="{reason}"']
        if self._oauth.scopes:
            parts.append(f'scope="{" ".join(self._oauth.scopes)}"')
        return Denied(status, reason, ((b"www-authenticate", ", ".join(parts).encode()),))

    async def _checked(self, token: bytes) -> _Known:
        mark, now = hashlib.sha256(token).digest(), time.time()
        if (known := self._known.get(mark)) is not None and known.until > now:
            return known
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise Untrusted("the token is malformed") from None
        if not text:
            raise Untrusted("the token is malformed")
        found = self._judged(await self._verifier.claims(text), now)
        self._known.pop(mark, None)
        self._known[mark] = found
        while len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return found

    def _judged(self, claims: Mapping[str, Any], now: float) -> _Known:
        """Whatever vouched for the claims: they must be for us, from whom we trust, and not over."""
        if self._audience.isdisjoint(_words(claims.get("aud"), split=False)):
            raise Untrusted("the token is for another audience")
        if claims.get("iss", self._oauth.issuer) != self._oauth.issuer:
            raise Untrusted("the token is of another issuer")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise Untrusted("the token says no time at which it expires")
        if expires + self._oauth.leeway <= now:
            raise Untrusted("the token has expired")
        subject = claims.get("sub") or claims.get("client_id") or claims.get("azp")
        if not isinstance(subject, str):
            raise Untrusted("the token names nobody")
        owner = hashlib.sha256(f"{self._oauth.issuer}\n{subject}".encode()).hexdigest()[:32]
        scopes = frozenset((*_words(claims.get("scope")), *_words(claims.get("scp"))))
        return _Known(owner, scopes, min(now + REMEMBERED_S, expires + self._oauth.leeway))


def _words(value: object, *, split: bool = True) -> list[str]:
    if isinstance(value, str):
        return value.split() if split else [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []
