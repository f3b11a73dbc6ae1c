"""An OAuth 2 protected resource (RFC 9728): which authorization server it trusts, and checking that server's tokens.

| token | response |
|---|---|
| missing, or not valid | 401 with the URL of the metadata |
| for another audience | 401 `invalid_token` |
| without the scopes | 403 `insufficient_scope` |
| the authorization server does not answer | 503 |

A token is a JWT, which is checked with the issuer's keys, or opaque, which is checked by introspection (RFC 7662). Only
a hash of a token is kept, with the result of its check, for some seconds.

The authorization server is asked over https or on this machine, without redirects, with limits of bytes and seconds,
and one request at a time. Keys are cached. A token with an unknown key id makes the keys be fetched again, since keys
are rotated, but at most every few seconds, since any client can make up a key id.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import msgspec

from perdure.host.serve_options import OAuth
from perdure.http.origin_check import Denied
from perdure.registry.errors import RegistryError
from perdure.registry.http.address import Address, read_address
from perdure.registry.http.client import HttpClient, Reply
from perdure.serve.auth import Caller

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
CACHED_S: Final = 30.0
MOST_CACHED: Final = 4096
RETRY_S: Final = 5
MOST_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
TIMEOUT_S: Final = 5.0
FRESH_S: Final = 600.0
STALE_S: Final = 24 * 3600.0
REFETCH_S: Final = 5.0


class InvalidToken(Exception):
    """A token that is not accepted. The reason is sent to the client and quotes nothing of the token."""


class IssuerUnavailable(Exception):
    """The authorization server cannot be asked now."""


class Verifier(Protocol):
    async def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token that its issuer made. Raises InvalidToken, IssuerUnavailable."""


class _CheckedToken(msgspec.Struct, frozen=True):
    owner: str
    scopes: frozenset[str]
    until: float


class ResourceServer:
    """`resource` is the URL by which clients know this server: the audience of their tokens, unless others are set."""

    def __init__(self, oauth: OAuth, resource: str, verifier: Verifier) -> None:
        self._oauth = oauth
        self._resource = resource
        self._verifier = verifier
        self._audience = frozenset(oauth.audience or (resource, resource.rstrip("/")))
        self._checked_tokens: dict[bytes, _CheckedToken] = {}
        address = read_address(resource)
        self._metadata_url = address.origin + WELL_KNOWN + address.path.rstrip("/")

    @property
    def metadata_paths(self) -> tuple[str, str]:
        """With the path of the resource, and without it, where older clients look."""
        return WELL_KNOWN + read_address(self._resource).path.rstrip("/"), WELL_KNOWN

    def metadata(self) -> bytes:
        document: dict[str, Any] = {
            "resource": self._resource,
            "authorization_servers": [self._oauth.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Perdure",
        }
        if self._oauth.scopes:
            document["scopes_supported"] = list(self._oauth.scopes)
        return msgspec.json.encode(document)

    async def authenticate(self, token: bytes | None) -> Caller | Denied:
        if token is None:
            return self._denied(401, "a token is needed")
        try:
            checked = await self._check(token)
        except InvalidToken as error:
            return self._denied(401, str(error), "invalid_token")
        except IssuerUnavailable as error:
            return Denied(503, str(error), ((b"retry-after", str(RETRY_S).encode()),))
        missing = [scope for scope in self._oauth.scopes if scope not in checked.scopes]
        if missing:
            return self._denied(403, f"the token lacks the scope {' '.join(missing)}", "insufficient_scope")
        return Caller(checked.owner)

    def _denied(self, status: int, reason: str, error: str = "") -> Denied:
        parts = ['Bearer realm="perdure"', f'resource_metadata="{self._metadata_url}"']
        if error:
            parts += [f'error="{error}"', f'error_description="{reason}"']
        if self._oauth.scopes:
            parts.append(f'scope="{" ".join(self._oauth.scopes)}"')
        return Denied(status, reason, ((b"www-authenticate", ", ".join(parts).encode()),))

    async def _check(self, token: bytes) -> _CheckedToken:
        digest, now = hashlib.sha256(token).digest(), time.time()
        if (cached := self._checked_tokens.get(digest)) is not None and cached.until > now:
            return cached
        try:
            text = token.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidToken("the token is malformed") from None
        if not text:
            raise InvalidToken("the token is malformed")
        checked = self._check_claims(await self._verifier.claims(text), now)
        self._checked_tokens.pop(digest, None)
        self._checked_tokens[digest] = checked
        while len(self._checked_tokens) > MOST_CACHED:
            del self._checked_tokens[next(iter(self._checked_tokens))]
        return checked

    def _check_claims(self, claims: Mapping[str, Any], now: float) -> _CheckedToken:
        """The rules for both kinds of tokens: audience, issuer, expiry, subject."""
        if self._audience.isdisjoint(_words(claims.get("aud"), split=False)):
            raise InvalidToken("the token is for another audience")
        if claims.get("iss", self._oauth.issuer) != self._oauth.issuer:
            raise InvalidToken("the token is of another issuer")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or isinstance(expires, bool):
            raise InvalidToken("the token does not say when it expires")
        if expires + self._oauth.leeway <= now:
            raise InvalidToken("the token has expired")
        subject = claims.get("sub") or claims.get("client_id") or claims.get("azp")
        if not isinstance(subject, str):
            raise InvalidToken("the token has no subject")
        owner = hashlib.sha256(f"{self._oauth.issuer}\n{subject}".encode()).hexdigest()[:32]
        scopes = frozenset((*_words(claims.get("scope")), *_words(claims.get("scp"))))
        return _CheckedToken(owner, scopes, min(now + CACHED_S, expires + self._oauth.leeway))


def _words(value: object, *, split: bool = True) -> list[str]:
    if isinstance(value, str):
        return value.split() if split else [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, list | tuple) else []


class Authority:
    """The authorization server of an issuer."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._client = HttpClient(timeout_s=TIMEOUT_S, max_bytes=MOST_BYTES)

    async def keys(self) -> list[dict[str, Any]]:
        """Its public keys. Raises IssuerUnavailable."""
        return await asyncio.to_thread(self._keys)

    async def introspect(self, token: str, secret: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._introspect, token, secret)

    def _keys(self) -> list[dict[str, Any]]:
        address = self._oauth.jwks or self._metadata().get("jwks_uri")
        if not isinstance(address, str):
            raise IssuerUnavailable("the authorization server does not say where its keys are")
        keys = self._get(read_address(address)).get("keys")
        if not isinstance(keys, list):
            raise IssuerUnavailable("the authorization server's keys cannot be read")
        return [key for key in keys[:MOST_KEYS] if isinstance(key, dict)]

    def _metadata(self) -> dict[str, Any]:
        """By RFC 8414, or by OpenID Connect. It must name the issuer that was asked for."""
        issuer = read_address(self._oauth.issuer)
        path = issuer.path.rstrip("/")
        metadata: dict[str, Any] = {}
        for location in (
            f"/.well-known/oauth-authorization-server{path}",
            f"{path}/.well-known/openid-configuration",
        ):
            metadata = self._get(msgspec.structs.replace(issuer, path=location), may_miss=True)
            if metadata:
                break
        if metadata.get("issuer") != self._oauth.issuer:
            raise IssuerUnavailable("the authorization server's metadata is not its own")
        return metadata

    def _introspect(self, token: str, secret: str) -> dict[str, Any]:
        assert self._oauth.introspection is not None
        address = read_address(self._oauth.introspection)
        if self._oauth.client_id is not None:
            userinfo = f"{quote(self._oauth.client_id, safe='')}:{quote(secret, safe='')}"
            address = msgspec.structs.replace(address, userinfo=userinfo)
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        try:
            reply = self._client.submit(address, body)
        except RegistryError:
            raise IssuerUnavailable("the authorization server cannot be reached") from None
        return _object(reply)

    def _get(self, address: Address, *, may_miss: bool = False) -> dict[str, Any]:
        try:
            reply = self._client.send("GET", address)
        except RegistryError:
            raise IssuerUnavailable("the authorization server cannot be reached") from None
        return {} if may_miss and reply.status == 404 else _object(reply)


def _object(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        raise IssuerUnavailable(f"the authorization server answered {reply.status}")
    try:
        answer = reply.json()
    except RegistryError:
        answer = None
    if not isinstance(answer, dict):
        raise IssuerUnavailable("the authorization server's answer cannot be read")
    return answer


class SignedTokens:
    """JWTs, checked with the keys that their issuer publishes."""

    def __init__(self, oauth: OAuth, authority: Authority) -> None:
        import jwt

        self._jwt = jwt
        self._oauth = oauth
        self._authority = authority
        self._keys: list[dict[str, Any]] = []
        self._requested_at = self._fetched_at = float("-inf")
        self._lock = asyncio.Lock()

    async def claims(self, token: str) -> Mapping[str, Any]:
        jwt = self._jwt
        try:
            head = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise InvalidToken("the token is malformed") from None
        algorithm = head.get("alg")
        if algorithm not in self._oauth.algorithms:
            raise InvalidToken("the token is not signed as it must be")
        if "crit" in head:
            raise InvalidToken("the token has critical headers that are not supported")
        key = await self._key(head.get("kid"), str(algorithm))
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                issuer=self._oauth.issuer,
                leeway=self._oauth.leeway,
                # `ResourceServer` checks the audience, for both kinds of tokens.
                options={"require": ["exp", "iss", "aud"], "verify_aud": False},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidToken("the token has expired") from None
        except jwt.PyJWTError:
            raise InvalidToken("the token is not its issuer's") from None
        return claims

    async def _key(self, name: object, algorithm: str) -> Any:
        now = time.monotonic()
        if now - self._fetched_at > FRESH_S:
            await self._fetch(now)
        key = self._cached_key(name, algorithm)
        if key is None:
            await self._fetch(now)
            key = self._cached_key(name, algorithm)
        if key is None:
            raise InvalidToken("the token is signed with a key that its issuer does not have")
        return key

    def _cached_key(self, name: object, algorithm: str) -> Any:
        """By its id; without an id, the only key that fits the algorithm."""
        fitting = [
            key
            for key in self._keys
            if (name is None or key.get("kid") == name)
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and key.get("kty") != "oct"
        ]
        usable = []
        for key in fitting:
            try:
                usable.append(self._jwt.PyJWK(key, algorithm))
            except (self._jwt.PyJWTError, ValueError, TypeError):
                continue  # broken, or for another algorithm
        return usable[0] if len(usable) == 1 else None

    async def _fetch(self, since: float) -> None:
        """One request for all waiting tokens, then a pause. Without an answer, cached keys stay valid for a day."""
        async with self._lock:
            now = time.monotonic()
            if self._fetched_at >= since or now - self._requested_at < REFETCH_S:
                if not self._keys:
                    raise IssuerUnavailable("the authorization server cannot be reached")
                return
            self._requested_at = now
            try:
                self._keys = await self._authority.keys()
                self._fetched_at = time.monotonic()
            except (IssuerUnavailable, RegistryError) as error:
                if now - self._fetched_at > STALE_S:
                    self._keys = []
                    raise IssuerUnavailable(str(error)) from None


class OpaqueTokens:
    """Opaque tokens, checked by introspection (RFC 7662)."""

    def __init__(self, authority: Authority, secret: str) -> None:
        self._authority = authority
        self._secret = secret
        self._slots = asyncio.Semaphore(8)

    async def claims(self, token: str) -> Mapping[str, Any]:
        async with self._slots:
            claims = await self._authority.introspect(token, self._secret)
        if claims.get("active") is not True:
            raise InvalidToken("the token is no longer active")
        return claims
