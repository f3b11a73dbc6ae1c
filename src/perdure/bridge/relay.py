"""A remote server behind a pipe: standard input and output on this side, HTTP (the official SDK) on the other.

A disposable child of the host. What to connect to comes by the environment (`PERDURE_BRIDGE`, a `Target`, references
already resolved), since a command line is for everyone to read. It keeps nothing but renewed tokens: when the connection
breaks, or the server has forgotten the session, it ends and says why, and the host starts another one, which opens a
session of its own. Credentials go as headers by reference, or as the token of a sign-in (`perdure registry login`), which
is renewed here; where a person is needed it ends with `SIGN_IN_CODE`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NoReturn

import msgspec

from perdure.bridge.target import SIGN_IN_CODE, TARGET_ENV, Target
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import UNAVAILABLE as UNAVAILABLE_MOUNT
from perdure.protocol.faults import Fault
from perdure.protocol.frames import RequestId, encode_raw_error
from perdure.registry.redaction import scrub

# The calls that the server refused for want of a right, by their id, with what it wants.
Refusals = dict[RequestId | None, str]

UNAVAILABLE: Final = 4
FRAME_BYTES: Final = 64 * 1024 * 1024
_REFUSED: Final = (401, 403)
_SESSION_GONE: Final = "Session terminated"


class BridgeEnded(Exception):
    """Why this bridge cannot go on."""


def main() -> NoReturn:
    target = msgspec.json.decode(os.environ.pop(TARGET_ENV, ""), type=Target)
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
    _say(target, reason, tokens)
    _leave(code)


def _say(target: Target, text: str, tokens: Sequence[str] = ()) -> None:
    secrets = [target.url, *target.headers.values(), target.oauth.get("client_secret", ""), *tokens]
    print(f"bridge: {scrub(text, secrets)}", file=sys.stderr, flush=True)


def _write(frame: bytes) -> None:
    sys.stdout.buffer.write(frame + b"\n")
    sys.stdout.buffer.flush()


def _refusal(target: Target, identity: RequestId, text: str) -> bytes:
    """The answer to a request that the server refused to run before somebody signs in."""
    hint = f"perdure registry login {target.name}"
    fault = Fault("downstream", "sign_in_required", detail=text, hint=hint)
    error = host_error(
        UNAVAILABLE_MOUNT,
        fault,
        mount=target.name,
        call="",
        attempts=1,
        outcome="not_started",
        retry="later",
    )
    return encode_raw_error(identity, error)


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

    refusals: Refusals = {}
    connected = _connected(target, refusals)
    async with connected as (incoming, outgoing), anyio.create_task_group() as tasks:
        relay = _Relay(target, incoming, outgoing, refusals)
        tasks.start_soon(relay.from_server)
        await relay.from_host()
        tasks.cancel_scope.cancel()


def _connected(target: Target, refusals: Refusals) -> AbstractAsyncContextManager[Any]:
    from mcp.shared._httpx_utils import create_mcp_http_client

    signed = None if target.has_credentials or not target.grant else _signed_in(target, refusals)

    def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> Any:
        made = create_mcp_http_client(headers, timeout, auth)
        if signed is not None:
            from perdure.bridge.oauth import checked_request

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


def _signed_in(target: Target, refusals: Refusals) -> Any:
    """The requests of somebody who has signed in, or who is told to."""
    from perdure.bridge.oauth import SignedIn, SignInRequired

    def ended(error: Exception, identity: RequestId | None) -> NoReturn:
        if isinstance(error, SignInRequired) and identity is not None:
            _write(_refusal(target, identity, str(error)))
        code = SIGN_IN_CODE if isinstance(error, SignInRequired) else UNAVAILABLE
        _end(target, str(error), code, auth.secrets)

    auth = SignedIn(target.url, target.grant, target.oauth, refusals, ended)
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

    def __init__(self, target: Target, incoming: Any, outgoing: Any, refusals: Refusals) -> None:
        from perdure.bridge.headers import RequestHeaders

        self._target = target
        self._incoming = incoming
        self._outgoing = outgoing
        self._refusals = refusals
        self._headers = RequestHeaders(lambda text: _say(target, text))

    async def from_host(self) -> None:
        """Until the host closes our input."""
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp_types import jsonrpc_message_adapter

        reader = await _opened_input()
        while line := await reader.readline():
            if not line.strip():
                continue
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            headers = self._headers.of(message)
            await self._outgoing.send(SessionMessage(message, ClientMessageMetadata(headers=headers or None)))

    async def from_server(self) -> None:
        async for found in self._incoming:
            if isinstance(found, Exception):
                raise found
            message = found.message
            self._headers.read_answer(message)
            error = getattr(message, "error", None)
            refusal = self._refusals.pop(message.id, "") if error is not None else ""
            if refusal:
                _write(_refusal(self._target, message.id, refusal))
                continue
            _write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
            if error is not None and error.message == _SESSION_GONE:
                raise BridgeEnded("the server has forgotten the session")
        raise BridgeEnded("the server closed the connection")
