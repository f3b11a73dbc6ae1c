"""Streamable HTTP at /mcp, in both eras: POST carries one message, GET holds a stream open, DELETE ends a session.

| | handshake era | 2026-07-28 |
|---|---|---|
| told by | no version header, or an older version | `MCP-Protocol-Version: 2026-07-28` |
| a session | by `Mcp-Session-Id`, which outlives a restart of ours | none |
| the client goes away | the call goes on; its answer waits for `Last-Event-ID` or the next try | the call is cancelled |

Frames are passed on as they came, and decoded only as far as routing needs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.http.server import Disconnected, Headers
from perdure.http.server import Request as HttpRequest
from perdure.protocol import eras
from perdure.protocol.frames import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    Malformed,
    Members,
    Notification,
    Request,
    Response,
    decode,
    decode_id,
    encode_error,
    encode_notification,
    members,
)
from perdure.serve import responses, validation
from perdure.serve.auth import TokenBuckets
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.responses import ErrorResponse, error_response, respond, retry_later
from perdure.serve.session_table import SessionTable, TooManySessions
from perdure.serve.store import StoreError

log = logging.getLogger("perdure.serve")


class Streamable:
    """The endpoint `/mcp`. `workspace_of` finds the workspace that a URL names."""

    def __init__(self, sessions: SessionTable, workspace_of: Callable[[HttpRequest], str]) -> None:
        self._sessions = sessions
        self._limits = sessions.limits
        self._most_bytes = min(sessions.limits.body_bytes, sessions.settings.limits.frame_bytes)
        self._reading = 0
        self._openings = TokenBuckets(sessions.limits.opening_rate, sessions.limits.opening_rate * 10)
        self._workspace_of = workspace_of

    async def __call__(self, request: HttpRequest, owner: str) -> None:
        try:
            match request.method:
                case "POST":
                    await self._post(request, owner)
                case "GET":
                    await self._get(request, owner)
                case "DELETE":
                    await self._delete(request, owner)
                case _:
                    raise ErrorResponse(405, b"", [(b"allow", b"GET, POST, DELETE")])
        except StoreError as error:
            message = f"perdure serve cannot write its store ({error}): nothing was done."
            busy = retry_later(503, message, "store_unavailable", 30)
            await respond(request, busy.status, busy.body, busy.headers)
        except ErrorResponse as error:
            await respond(request, error.status, error.body, error.headers)
        except Exception:
            log.exception("a request could not be answered")
            message = (
                "An error inside perdure serve. If this was a call, look for its effect before you repeat it."
            )
            data = {"class": "invariant", "code": "unhandled_request", "outcome": "unknown", "retry": "never"}
            await respond(request, 500, encode_error(None, INTERNAL_ERROR, message, data))

    # --- POST ------------------------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest, owner: str) -> None:
        if not request.header(b"content-type").lower().startswith("application/json"):
            raise error_response(
                415, "send the body as JSON, with the header Content-Type: application/json."
            )
        version = request.header(b"mcp-protocol-version")
        is_modern = bool(version) and version not in eras.HANDSHAKE_VERSIONS
        takes_json, takes_stream = _accepted(request.headers)
        if not takes_json or not (takes_stream or is_modern):
            raise error_response(406, "send the header Accept: application/json, text/event-stream.")
        frame = await self.read_body(request)
        message = decode(frame)
        if isinstance(message, Malformed):
            body = encode_error(message.id, message.code, message.reason)
            raise ErrorResponse(400, body)
        if is_modern:
            await self._post_modern(request, owner, frame, message, takes_stream)
        else:
            await self._post_handshake(request, owner, frame, message)

    def _too_large(self) -> ErrorResponse:
        most = f"{self._most_bytes:,}"
        return error_response(
            413, f"the body has more than {most} bytes: send a large file in pieces (chunk_append)."
        )

    async def read_body(self, request: HttpRequest) -> bytes:
        declared = request.header(b"content-length")
        if declared.isdigit() and int(declared) > self._most_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_s):
                while part := await request.read():
                    size += len(part)
                    self._reading += len(part)
                    if size > self._most_bytes:
                        raise self._too_large()
                    if self._reading > self._limits.bodies_bytes:
                        raise retry_later(
                            503,
                            "too many large requests arrive at once: send this one again in a moment.",
                            "too_many_bytes",
                        )
                    parts.append(part)
        except Disconnected:
            raise error_response(400, "the connection ended before the body arrived.") from None
        except TimeoutError:
            raise error_response(408, "the body did not arrive in time: send the request again.") from None
        finally:
            self._reading -= size
        return _one_line(b"".join(parts))

    async def _post_handshake(
        self, request: HttpRequest, owner: str, frame: bytes, message: Request | Notification | Response
    ) -> None:
        name = request.header(b"mcp-session-id")
        opens = isinstance(message, Request) and message.method == "initialize" and not name
        session = self._open_session(request, owner) if opens else self._find_session(name, owner)
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        if not isinstance(message, Request):
            session.post(frame, None)
            await respond(request, 202, b"", own)
            return
        self._check_pending(len(session.exchanges))
        exchange = Exchange(message.id, _token(message), can_stream=True, is_resumable=True)
        session.post(frame, exchange, asked(message.method, message.params))
        await responses.answer(session, exchange, request, own)
        if opens and not session.kernel.state.session.initialized:
            self._sessions.end(session)

    def _open_session(self, request: HttpRequest, owner: str) -> HttpSession:
        workspace = self._workspace_of(request)
        wait = self._openings.take(owner or request.client[0], time.monotonic())
        if wait:
            raise retry_later(
                429, "sessions are opened too fast: wait as long as Retry-After says.", "too_fast", wait
            )
        try:
            return self._sessions.open(workspace, owner)
        except TooManySessions:
            raise retry_later(
                503, "too many sessions are open: end one, or wait.", "too_many_sessions", 30
            ) from None

    def _find_session(self, name: str, owner: str) -> HttpSession:
        if not name:
            raise error_response(
                400,
                "the header Mcp-Session-Id is missing: send initialize first, then the id that its answer has.",
            )
        try:
            session = self._sessions.named_as(name, owner)
        except TooManySessions:
            raise retry_later(
                503, "too many sessions are busy: send the request again in a moment.", "too_many_sessions", 5
            ) from None
        if session is None:
            raise error_response(
                404, "Mcp-Session-Id names no open session: send initialize to open a new one."
            )
        return session

    def _check_pending(self, waiting: int) -> None:
        if waiting >= self._limits.session_requests:
            raise retry_later(
                429,
                f"{waiting} requests of this session wait already: send this one when one of them is answered.",
                "too_many_pending",
            )

    async def _post_modern(
        self,
        request: HttpRequest,
        owner: str,
        frame: bytes,
        message: Request | Notification | Response,
        takes_stream: bool,
    ) -> None:
        if isinstance(message, Response):
            raise error_response(400, "the body must be one request or notification.")
        version = request.header(b"mcp-protocol-version")
        if isinstance(message, Notification):
            if version not in eras.MODERN_VERSIONS:
                fault = eras.unsupported_version(version)
                _reject(None, validation.Rejection(fault.code, fault.message, fault.data))
            # A client cancels by closing its connection; an id could be that of another client's call.
            await respond(request, 202, b"")
            return
        if (rejection := validation.check_request(message, request.headers)) is not None:
            _reject(message, rejection)
        if message.method == "subscriptions/listen" and not takes_stream:
            raise error_response(406, "send the header Accept: text/event-stream.")
        workspace = self._workspace_of(request)
        params = members(message.params) if message.params is not None else {}
        meta = members(params["_meta"])
        identity = f"{workspace}\n{owner}\n{bytes(meta.get(eras.META_CLIENT, b'')).decode()}"
        self._check_pending(self._sessions.waiting(identity))
        state = params.get("requestState", params.get("taskId"))
        ticket = decode_id(state) if state is not None else None
        question = asked(message.method, message.params)
        try:
            session = self._sessions.for_request(
                identity, workspace, message.id, question, ticket if isinstance(ticket, str) else None
            )
        except TooManySessions:
            raise retry_later(
                503, "too many clients are busy: send the request again in a moment.", "too_many_sessions", 5
            ) from None
        if (
            message.method == "tools/call"
            and (rejection := _check_arguments(session, params, request.headers)) is not None
        ):
            _reject(message, rejection)
        exchange = Exchange(message.id, _token(message), can_stream=takes_stream)
        session.post(frame, exchange, question)
        if await responses.answer(session, exchange, request, []):
            params_of = msgspec.json.encode({"requestId": message.id})
            session.post(encode_notification("notifications/cancelled", params_of), None)

    # --- GET and DELETE --------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest, owner: str) -> None:
        version = request.header(b"mcp-protocol-version")
        if version and version not in eras.HANDSHAKE_VERSIONS:
            raise ErrorResponse(405, b"", [(b"allow", b"POST")])
        if not _accepted(request.headers)[1]:
            raise error_response(406, "send the header Accept: text/event-stream.")
        session = self._find_session(request.header(b"mcp-session-id"), owner)
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        last = request.header(b"last-event-id")
        missed = responses.missed_standing(session, last) if last else []
        if missed is not None:
            await responses.serve_standing_stream(session, missed, request, own)
        elif (stream := responses.find_stream(session, last)) is not None:
            await responses.resume_stream(session, *stream, request, own)
        else:
            raise error_response(
                400, "Last-Event-ID names no stream of this session: leave it out to open a new one."
            )

    async def _delete(self, request: HttpRequest, owner: str) -> None:
        session = self._find_session(request.header(b"mcp-session-id"), owner)
        self._sessions.end(session)
        await respond(request, 204, b"")


def _reject(request: Request | None, rejection: validation.Rejection) -> None:
    identity = request.id if request is not None else None
    body = encode_error(identity, rejection.code, rejection.message, rejection.data)
    raise ErrorResponse(validation.STATUS.get(rejection.code, 400), body)


def _check_arguments(session: HttpSession, params: Members, headers: Headers) -> validation.Rejection | None:
    name = decode_id(params["name"]) if "name" in params else None
    tool = session.kernel.public.tool(name) if isinstance(name, str) else None
    try:
        return validation.check_arguments(tool.definition, params, headers) if tool is not None else None
    except (msgspec.MsgspecError, RecursionError):
        return None  # the server gets it and answers with its own error


def _one_line(body: bytes) -> bytes:
    """The body on one line, as pipes to servers need it. Line breaks inside strings are escaped already."""
    body = body.strip()
    if b"\n" not in body and b"\r" not in body:
        return body
    try:
        return msgspec.json.format(body, indent=-1)
    except msgspec.MsgspecError:
        raise error_response(400, "the body is not JSON.", PARSE_ERROR) from None


def _token(request: Request) -> Any:
    if request.params is None or b'"progressToken"' not in bytes(request.params):
        return None
    try:
        meta = members(members(request.params)["_meta"])
        return decode_id(meta["progressToken"])
    except (ValueError, KeyError):
        return None


def _accepted(headers: Headers) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes a stream."""
    accepted = ",".join(value.decode("latin-1") for key, value in headers if key == b"accept").lower()
    kinds = {part.split(";")[0].strip() for part in accepted.split(",")}
    everything = "*/*" in kinds
    return (
        everything or bool(kinds & {"application/json", "application/*"}),
        everything or bool(kinds & {"text/event-stream", "text/*"}),
    )
