"""A remote server behind a pipe: standard input and output on this side, HTTP (the official SDK) on the other.

A disposable child of the host. What to connect to comes by the environment (`PERDURE_BRIDGE`), since a command line is
for everyone to read: `{"transport", "url", "headers", "oauth", "grant"}`, references already resolved. It keeps nothing
but renewed tokens: when the connection breaks, or the server has forgotten the session, it ends and says why, and the
host starts another one, which opens a session of its own. Credentials go as headers by reference, or as the token of a
sign-in (`perdure registry login`), which is renewed here; where a person is needed it ends with `SIGN_IN`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, NoReturn

import msgspec

from perdure.host.registry_mounts import BRIDGE, SIGN_IN
from perdure.registry.redaction import scrubbed

UNAVAILABLE: Final = 4
FRAME_BYTES: Final = 64 * 1024 * 1024
_REFUSED: Final = (401, 403)
_SESSION_GONE: Final = "Session terminated"


class Target(msgspec.Struct, frozen=True):
    url: str
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    headers: dict[str, str] = {}
    oauth: dict[str, str] = {}
    grant: str = ""

    @property
    def has_credentials(self) -> bool:
        """Whether a header says who we are already."""
        return any(name.lower() == "authorization" for name in self.headers)


class BridgeEnded(Exception):
    """Why this bridge cannot go on."""


def main() -> NoReturn:
    target = msgspec.json.decode(os.environ.pop(BRIDGE, ""), type=Target)
    import logging

    logging.disable()  # the SDK's words may hold what was sent
    try:
        import anyio

        anyio.run(_relay, target)
    except ImportError:
        _end(target, "a remote server needs the official SDK: install perdure[remote]", UNAVAILABLE)
    except Exception as error:  # whatever the other side does: the host starts another bridge
        _end(target, _reason(error), UNAVAILABLE)
    _leave(0)


def _end(target: Target, reason: str, code: int, tokens: Sequence[str] = ()) -> NoReturn:
    secrets = [target.url, *target.headers.values(), target.oauth.get("client_secret", ""), *tokens]
    print(f"bridge: {scrubbed(reason, secrets)}", file=sys.stderr, flush=True)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """At once: nothing here is worth an orderly end."""
    sys.stdout.flush()
    os._exit(code)


def _reason(error: BaseException) -> str:
    """The first cause: a group only says that there was one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if not isinstance(error, BridgeEnded) else str(error)


async def _relay(target: Target) -> None:
    import anyio

    async with _connected(target) as (incoming, outgoing), anyio.create_task_group() as tasks:
        relay = _Relay(incoming, outgoing)
        tasks.start_soon(relay.from_server)
        await relay.from_host()
        tasks.cancel_scope.cancel()


def _connected(target: Target) -> AbstractAsyncContextManager[Any]:
    from mcp.shared._httpx_utils import create_mcp_http_client

    signed = None if target.has_credentials or not target.grant else _signed_in(target)

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        made = create_mcp_http_client(headers, timeout, auth)
        if signed is not None:
            from perdure.host.bridge_oauth import checked_request

            made.event_hooks["request"].append(checked_request)
        else:
            made.event_hooks["response"].append(_refuse_unauthorized)
        return made

    if target.transport == "sse":
        from mcp.client.sse import sse_client

        return sse_client(
            _without_userinfo(target), headers=target.headers, auth=signed, httpx_client_factory=client
        )
    from mcp.client.streamable_http import streamable_http_client

    return streamable_http_client(
        _without_userinfo(target), http_client=client(headers=target.headers, auth=signed)
    )


def _signed_in(target: Target) -> Any:
    """The requests of somebody who has signed in, or who is told to."""
    from perdure.host.bridge_oauth import SignedIn, SignInRequired

    def ended(error: Exception) -> NoReturn:
        code = SIGN_IN if isinstance(error, SignInRequired) else UNAVAILABLE
        _end(target, str(error), code, auth.secrets)

    auth = SignedIn(target.url, target.grant, target.oauth, ended)
    return auth


def _without_userinfo(target: Target) -> str:
    """Where a header says who we are, a password in the URL must not take its place."""
    if not target.has_credentials:
        return target.url
    scheme, mark, rest = target.url.partition("://")
    place, slash, path = rest.partition("/")
    return scheme + mark + place.rpartition("@")[2] + slash + path


async def _refuse_unauthorized(response: Any) -> None:
    if response.status_code in _REFUSED:
        raise BridgeEnded(f"the server refused the credentials ({response.status_code})")


async def _opened_input() -> asyncio.StreamReader:
    """Standard input as a pipe that a waiting reader can be called away from; a thread could not."""
    reader = asyncio.StreamReader(limit=FRAME_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    return reader


class _Relay:
    """Frames from one side to the other, with the headers that HTTP wants on the way out."""

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._opening: object = None
        self._version = ""

    async def from_host(self) -> None:
        """Until the host closes our input."""
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp_types import jsonrpc_message_adapter

        reader = await _opened_input()
        while line := await reader.readline():
            if not line.strip():
                continue
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            if getattr(message, "method", "") == "initialize":
                self._opening = getattr(message, "id", None)
            headers = self._headers(message)
            await self._outgoing.send(SessionMessage(message, ClientMessageMetadata(headers=headers or None)))

    async def from_server(self) -> None:
        async for found in self._incoming:
            if isinstance(found, Exception):
                raise found
            message = found.message
            frame = message.model_dump_json(by_alias=True, exclude_unset=True)
            if self._opening is not None and getattr(message, "id", None) == self._opening:
                self._opened(message)
            sys.stdout.write(frame + "\n")
            sys.stdout.flush()
            error = getattr(message, "error", None)
            if error is not None and error.message == _SESSION_GONE:
                raise BridgeEnded("the server has forgotten the session")
        raise BridgeEnded("the server closed the connection")

    def _opened(self, message: Any) -> None:
        self._opening = None
        result = getattr(message, "result", None) or {}
        self._version = str(result.get("protocolVersion", ""))

    def _headers(self, message: Any) -> dict[str, str]:
        """The version that was negotiated; in the 2026 era also the method and what it names."""
        from mcp.shared import inbound

        method = getattr(message, "method", "")
        params = getattr(message, "params", None) or {}
        version = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
        if version is None:
            return {inbound.MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}
        found = {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: method}
        name = params.get(inbound.NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            found[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
        return found
