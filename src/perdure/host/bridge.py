"""A remote server behind a pipe: standard input and output on this side, HTTP (the official SDK) on the other.

A disposable child of the host. What to connect to comes by the environment (`PERDURE_BRIDGE`), since a command line is
for everyone to read: `{"transport", "url", "headers"}`, references already resolved. It keeps nothing: when the
connection breaks, or the server has forgotten the session, it ends and says why, and the host starts another one, which
opens a session of its own. Credentials go as headers by reference; an interactive OAuth login is not made here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, NoReturn

import msgspec

from perdure.host.registry_mounts import BRIDGE
from perdure.registry.redaction import scrubbed

UNAVAILABLE: Final = 4
FRAME_BYTES: Final = 64 * 1024 * 1024
_REFUSED: Final = (401, 403)
_SESSION_GONE: Final = "Session terminated"


class Target(msgspec.Struct, frozen=True):
    url: str
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    headers: dict[str, str] = {}


class BridgeEnded(Exception):
    """Why this bridge cannot go on."""


def main() -> NoReturn:
    target = msgspec.json.decode(os.environ.pop(BRIDGE, ""), type=Target)
    try:
        import anyio

        anyio.run(_relay, target)
        reason = ""
    except ImportError:
        reason = "a remote server needs the official SDK: install perdure[remote]"
    except Exception as error:  # whatever the other side does: the host starts another bridge
        reason = _reason(error)
    if reason:
        secrets = [target.url, *target.headers.values()]
        print(f"bridge: {scrubbed(reason, secrets)}", file=sys.stderr, flush=True)
    _leave(UNAVAILABLE if reason else 0)


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
    if target.transport == "sse":
        from mcp.client.sse import sse_client

        return sse_client(_without_userinfo(target), headers=target.headers)
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    client = create_mcp_http_client(headers=target.headers)
    client.event_hooks["response"].append(_refuse_unauthorized)
    return streamable_http_client(_without_userinfo(target), http_client=client)


def _without_userinfo(target: Target) -> str:
    """Where a header says who we are, a password in the URL must not take its place."""
    if not any(name.lower() == "authorization" for name in target.headers):
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
