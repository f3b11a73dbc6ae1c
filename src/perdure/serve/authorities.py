"""What the authorization server says: its metadata, its keys, and whether a token is still good.

Asked over https or on this machine, never redirected, bounded in bytes and seconds, one at a time; what it said is
kept. A key that is not known is asked for once more, since keys are rotated, but not more often than every few
seconds, since anybody can make up a name of a key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from perdure.host.serve_options import OAuth
from perdure.registry.errors import RegistryError
from perdure.registry.http.address import Address, read_address
from perdure.registry.http.client import HttpClient, Reply
from perdure.serve.oauth import Unanswered, Untrusted

MOST_BYTES: Final = 256 * 1024
MOST_KEYS: Final = 100
TIMEOUT_S: Final = 5.0
FRESH_S: Final = 600.0
STALE_S: Final = 24 * 3600.0
AGAIN_S: Final = 5.0


class Authority:
    """The server behind an issuer's name."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._fetcher = HttpClient(timeout_s=TIMEOUT_S, max_bytes=MOST_BYTES)

    async def keys(self) -> list[dict[str, Any]]:
        """Its public keys as it publishes them. Raises Unanswered."""
        return await asyncio.to_thread(self._keys)

    async def introspected(self, token: str, secret: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._introspected, token, secret)

    def _keys(self) -> list[dict[str, Any]]:
        address = self._oauth.jwks or self._metadata().get("jwks_uri")
        if not isinstance(address, str):
            raise Unanswered("the authorization server does not say where its keys are")
        found = self._get(read_address(address)).get("keys")
        if not isinstance(found, list):
            raise Unanswered("the authorization server's keys cannot be read")
        return [one for one in found[:MOST_KEYS] if isinstance(one, dict)]

    def _metadata(self) -> dict[str, Any]:
        """By RFC 8414, or as OpenID Connect has it. It must speak for the issuer that was asked for."""
        issuer = read_address(self._oauth.issuer)
        path = issuer.path.rstrip("/")
        found: dict[str, Any] = {}
        for place in (
            f"/.well-known/oauth-authorization-server{path}",
            f"{path}/.well-known/openid-configuration",
        ):
            found = self._get(msgspec.structs.replace(issuer, path=place), may_miss=True)
            if found:
                break
        if found.get("issuer") != self._oauth.issuer:
            raise Unanswered("the authorization server's metadata is not its own")
        return found

    def _introspected(self, token: str, secret: str) -> dict[str, Any]:
        assert self._oauth.introspection is not None
        address = read_address(self._oauth.introspection)
        if self._oauth.client_id is not None:
            known = f"{quote(self._oauth.client_id, safe='')}:{quote(secret, safe='')}"
            address = msgspec.structs.replace(address, userinfo=known)
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        try:
            reply = self._fetcher.submit(address, body)
        except RegistryError:
            raise Unanswered("the authorization server cannot be reached") from None
        return _object(reply)

    def _get(self, address: Address, *, may_miss: bool = False) -> dict[str, Any]:
        try:
            reply = self._fetcher.send("GET", address)
        except RegistryError:
            raise Unanswered("the authorization server cannot be reached") from None
        return {} if may_miss and reply.status == 404 else _object(reply)


def _object(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        raise Unanswered(f"the authorization server answered {reply.status}")
    try:
        found = reply.json()
    except RegistryError:
        found = None
    if not isinstance(found, dict):
        raise Unanswered("the authorization server's answer cannot be read")
    return found


class SignedTokens:
    """JWTs, by the keys that their issuer publishes."""

    def __init__(self, oauth: OAuth, authority: Authority) -> None:
        import jwt

        self._jwt = jwt
        self._oauth = oauth
        self._authority = authority
        self._keys: list[dict[str, Any]] = []
        self._asked_at = self._told_at = float("-inf")
        self._turn = asyncio.Lock()

    async def claims(self, token: str) -> Mapping[str, Any]:
        jwt = self._jwt
        try:
            head = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise Untrusted("the token is malformed") from None
        algorithm = head.get("alg")
        if algorithm not in self._oauth.algorithms:
            raise Untrusted("the token is not signed as it must be")
        if "crit" in head:
            raise Untrusted("the token asks for more than is understood here")
        key = await self._key(head.get("kid"), str(algorithm))
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                issuer=self._oauth.issuer,
                leeway=self._oauth.leeway,
                # The audience is judged with everything else that both kinds of tokens say.
                options={"require": ["exp", "iss", "aud"], "verify_aud": False},
            )
        except jwt.ExpiredSignatureError:
            raise Untrusted("the token has expired") from None
        except jwt.PyJWTError:
            raise Untrusted("the token is not its issuer's") from None
        return found

    async def _key(self, name: object, algorithm: str) -> Any:
        now = time.monotonic()
        if now - self._told_at > FRESH_S:
            await self._ask(now)
        found = self._found(name, algorithm)
        if found is None:
            await self._ask(now)
            found = self._found(name, algorithm)
        if found is None:
            raise Untrusted("the token is signed with a key that its issuer does not have")
        return found

    def _found(self, name: object, algorithm: str) -> Any:
        """The one key that it can be: by its name, or where it has none the only one of its kind."""
        fitting = [
            key
            for key in self._keys
            if (name is None or key.get("kid") == name)
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and key.get("kty") != "oct"
        ]
        made = []
        for key in fitting:
            try:
                made.append(self._jwt.PyJWK(key, algorithm))
            except (self._jwt.PyJWTError, ValueError, TypeError):
                continue  # of another kind than the algorithm's, or broken
        return made[0] if len(made) == 1 else None

    async def _ask(self, since: float) -> None:
        """Once for all who wait, and not again at once. What was said before is good for a while."""
        async with self._turn:
            now = time.monotonic()
            if self._told_at >= since or now - self._asked_at < AGAIN_S:
                if not self._keys:
                    raise Unanswered("the authorization server cannot be reached")
                return
            self._asked_at = now
            try:
                self._keys = await self._authority.keys()
                self._told_at = time.monotonic()
            except (Unanswered, RegistryError) as error:
                if now - self._told_at > STALE_S:
                    self._keys = []
                    raise Unanswered(str(error)) from None


class OpaqueTokens:
    """Tokens that only their issuer can read: it is asked about each (RFC 7662)."""

    def __init__(self, authority: Authority, secret: str) -> None:
        self._authority = authority
        self._secret = secret
        self._room = asyncio.Semaphore(8)

    async def claims(self, token: str) -> Mapping[str, Any]:
        async with self._room:
            found = await self._authority.introspected(token, self._secret)
        if found.get("active") is not True:
            raise Untrusted("the token is not good any more")
        return found
