"""Signing in to a remote server, once, by its owner: authorization code with PKCE, on the official SDK.

The server is asked something it refuses to strangers; the SDK finds its authorization server, registers a client where
none is named, and gives the address to open. The answer comes to a port of this machine, which takes nothing but the
one answer it waits for. Tokens go to `perdure.registry.oauth_tokens` and nowhere else.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult

from perdure.bridge.oauth import Storage, checked_request, grant_of, metadata
from perdure.protocol.eras import (
    LATEST_HANDSHAKE,
    LATEST_MODERN,
    META_CAPABILITIES,
    META_CLIENT,
    META_VERSION,
)
from perdure.registry.errors import AuthRequired, InvalidEntry, RegistryUnavailable
from perdure.registry.http.address import check_address, read_address
from perdure.registry.oauth_tokens import Grant, read_grant, write_grant
from perdure.registry.resolved_entry import ResolvedEntry

CALLBACK: Final = "/callback"
LINE_BYTES: Final = 16 * 1024
_REFUSED: Final = (401, 403)
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>Perdure</title><p>{}</p>"
_CLIENT: Final = {"name": "perdure", "version": "0"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}


def sign_in(
    found: ResolvedEntry, path: str, transport: str, wait_s: float, show: Callable[[str], None]
) -> bool:
    """Whether a sign-in was asked for; then it is kept at `path`. `show` gets the address to open.

    Raises AuthRequired where it was refused or nobody came, RegistryUnavailable where a server does not answer.
    """
    import logging

    logging.disable()  # the SDK's words may hold a token
    try:
        return asyncio.run(_signed_in(found, path, transport, wait_s, show))
    except TimeoutError:
        raise AuthRequired(
            f"nobody signed in to {found.name} in time",
            entry=found.name,
            hint="try again, or with a longer --wait",
        ) from None
    except OAuthFlowError as error:
        raise AuthRequired(
            f"the sign-in to {found.name} failed: {_first_words(error)}",
            entry=found.name,
            hint="a server that registers no clients needs oauth: client_id=… in its entry",
        ) from None
    except httpx2.HTTPError as error:
        raise RegistryUnavailable(
            f"{found.name} cannot be reached ({type(error).__name__})", entry=found.name
        ) from None


async def _signed_in(
    found: ResolvedEntry, path: str, transport: str, wait_s: float, show: Callable[[str], None]
) -> bool:
    before = read_grant(path)
    async with _Doorway(_port(found.oauth, before), "redirect_port" in found.oauth) as door:
        kept = before if before is not None and door.redirect in _redirects(before) else None
        storage = Storage(
            Grant("", client=kept.client) if kept is not None else None, found.oauth, door.redirect
        )

        async def opened(url: str) -> None:
            check_address(read_address(url), False)
            door.expect(url)
            show(url)

        provider = OAuthClientProvider(
            found.url,
            metadata(found.oauth, door.redirect, before),
            storage,
            opened,
            door.answered,
            found.oauth.get("client_metadata_url"),
        )
        async with asyncio.timeout(wait_s):
            status = await _asked(found, transport, provider)
    if storage.tokens is None:
        if status in _REFUSED:
            raise AuthRequired(
                f"{found.name} refuses us ({status}) and does not say where to sign in", entry=found.name
            )
        return False
    if status in _REFUSED:
        raise AuthRequired(f"{found.name} does not take the token it was given ({status})", entry=found.name)
    write_grant(path, grant_of(secrets.token_hex(8), provider, storage))
    return True


async def _asked(found: ResolvedEntry, transport: str, provider: OAuthClientProvider) -> int:
    """The status of something a stranger may not ask; with the sign-in on the way there."""
    async with create_mcp_http_client(headers=found.headers, auth=provider) as client:
        client.event_hooks["request"].append(checked_request)
        if transport == "sse":
            async with client.stream("GET", found.url, headers=_ACCEPT) as response:
                return response.status_code
        status = await _discover(client, found.url)
        if status < 300 or status in _REFUSED:
            return status
        return await _initialize(client, found.url)


async def _discover(client: httpx2.AsyncClient, url: str) -> int:
    """In the era of 2026. What may be discovered by everybody need not be what may be listed."""
    status = 0
    for number, method in enumerate(("server/discover", "tools/list"), 1):
        meta = {META_VERSION: LATEST_MODERN, META_CLIENT: _CLIENT, META_CAPABILITIES: {}}
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta}}
        headers = {**_ACCEPT, "MCP-Protocol-Version": LATEST_MODERN, "Mcp-Method": method}
        async with client.stream("POST", url, json=frame, headers=headers) as response:
            status = response.status_code
        if status >= 300:
            break
    return status


async def _initialize(client: httpx2.AsyncClient, url: str) -> int:
    """By the handshake, and with a session as far as the list."""
    opening = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
    async with client.stream("POST", url, json=frame, headers=_ACCEPT) as response:
        status, session = response.status_code, response.headers.get("mcp-session-id")
    if status >= 300:
        return status
    headers = {**_ACCEPT, "MCP-Protocol-Version": LATEST_HANDSHAKE}
    if session:
        headers["mcp-session-id"] = session
    following: list[dict[str, object]] = [
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    for request in following:
        async with client.stream(
            "POST", url, json={"jsonrpc": "2.0", **request}, headers=headers
        ) as response:
            if response.status_code in _REFUSED:
                status = response.status_code
    if session:
        await client.delete(url, headers={"mcp-session-id": session})
    return status


def _port(oauth: dict[str, str], before: Grant | None) -> int:
    """The entry's, else the one a client was registered with, else any."""
    if "redirect_port" in oauth:
        return int(oauth["redirect_port"])
    found = [urlsplit(one).port for one in (_redirects(before) if before is not None else [])]
    return found[0] or 0 if found else 0


def _redirects(grant: Grant) -> list[str]:
    return [str(one) for one in grant.client.get("redirect_uris") or []]


def _first_words(error: Exception) -> str:
    """Up to what a server answered: that may repeat what was sent."""
    return str(error).partition("\n")[0].partition(": ")[0][:200]


class _Doorway:
    """A port of this machine to which the browser comes back."""

    def __init__(self, port: int, is_fixed: bool) -> None:
        self._wanted = port
        self._is_fixed = is_fixed
        self._state = ""
        self._result: asyncio.Future[AuthorizationCodeResult] | None = None
        self.redirect = ""

    async def __aenter__(self) -> _Doorway:
        listening = _listening(self._wanted, self._is_fixed)
        self._server = await asyncio.start_server(self._visited, sock=listening, limit=LINE_BYTES)
        self.redirect = f"http://127.0.0.1:{listening.getsockname()[1]}{CALLBACK}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def expect(self, url: str) -> None:
        """Every question has its own answer: a server may want a second sign-in on the way."""
        self._result = asyncio.get_running_loop().create_future()
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]

    async def answered(self) -> AuthorizationCodeResult:
        assert self._result is not None
        return await self._result

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), 5.0)
            status, text = self._heard(line.decode("latin-1").split(" "))
            page = _PAGE.format(text).encode()
            head = (
                f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(page)}\r\n"
                "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + page)
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # whoever it was is gone
        finally:
            writer.close()

    def _heard(self, words: list[str]) -> tuple[str, str]:
        """Only the answer to our own question counts; anybody on this machine can come to the port."""
        parts = urlsplit(words[1]) if len(words) == 3 and words[0] == "GET" else None
        if parts is None or parts.path != CALLBACK:
            return "404 Not Found", "Nothing is here."
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if not self._state or not secrets.compare_digest(
            query.get("state", "").encode(), self._state.encode()
        ):
            return "400 Bad Request", "This is not the answer that is waited for."
        assert self._result is not None
        if self._result.done():
            return "200 OK", "It was answered already."
        if "code" not in query:
            self._result.set_exception(OAuthFlowError(f"refused as {_word(query.get('error', ''))}"))
            return "200 OK", "You are not signed in. You can close this window."
        self._result.set_result(
            AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))
        )
        return "200 OK", "You are signed in. You can close this window."


def _word(text: str) -> str:
    return "".join(c for c in text[:60] if c.isascii() and (c.isalnum() or c in "_-")) or "unknown"


def _listening(port: int, is_fixed: bool) -> socket.socket:
    """On the wanted port where it is free; one that the entry names must be."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError:
        if is_fixed:
            made.close()
            raise RegistryUnavailable(f"the port {port} of oauth redirect_port is taken") from None
        made.bind(("127.0.0.1", 0))
    return made


async def revoke(found: ResolvedEntry, grant: Grant) -> bool:
    """Whether the authorization server took the tokens back. It is asked once; what is kept here goes in any case."""
    endpoint = grant.server.get("revocation_endpoint")
    held = [grant.tokens[key] for key in ("refresh_token", "access_token") if grant.tokens.get(key)]
    if not endpoint or not held:
        return False
    client_id = found.oauth.get("client_id") or grant.client.get("client_id", "")
    secret = found.oauth.get("client_secret") or grant.client.get("client_secret")
    form: dict[str, Any] = {"client_id": client_id} | ({"client_secret": secret} if secret else {})
    try:
        async with create_mcp_http_client(timeout=httpx2.Timeout(10.0)) as client:
            client.event_hooks["request"].append(checked_request)
            answers = [await client.post(endpoint, data={**form, "token": token}) for token in held]
    except (httpx2.HTTPError, InvalidEntry):
        return False
    return all(answer.status_code == 200 for answer in answers)
