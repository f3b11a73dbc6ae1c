"""Streamable HTTP at /mcp, in both eras: POST carries one message, GET holds a stream open, DELETE ends a session.

| | handshake era | 2026-07-28 |
|---|---|---|
| told by | no version header, or an older version | `MCP-Protocol-Version: 2026-07-28` |
| a session | by `Mcp-Session-Id`, which outlives a restart of ours | none |
| the client goes away | the call goes on; its answer waits for `Last-Event-ID` or the next try | the call is cancelled |

Frames go on as they came: nothing here makes objects of them beyond what routing needs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec

from perdure.http.server import Disconnected, Headers
from perdure.http.server import Request as HttpRequest
from perdure.protocol import eras
from perdure.protocol.faults import TOO_MANY_PENDING
from perdure.protocol.frames import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
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
from perdure.serve import answering, ladder, param_headers, resumption
from perdure.serve.answering import respond
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.pace import Pace
from perdure.serve.session_table import SessionTable, TooManySessions
from perdure.serve.store import StoreError

log = logging.getLogger("perdure.serve")


class Refused(Exception):
    """An HTTP answer that says no, with a JSON-RPC error as its body."""

    def __init__(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or []


def refused(status: int, message: str, code: int = INVALID_REQUEST) -> Refused:
    return Refused(status, encode_error(None, code, message))


def overdone(status: int, message: str, reason: str, wait: float = 1.0) -> Refused:
    """Too much of something: nothing has happened, and it may be tried again after a while."""
    data = {"class": "resource", "code": reason, "outcome": "not_started", "retry": "later"}
    body = encode_error(None, TOO_MANY_PENDING, message, data)
    return Refused(status, body, [(b"retry-after", str(max(1, ceil(wait))).encode())])


class Streamable:
    """The endpoint. `workspace_of` finds the workspace that a URL asks for."""

    def __init__(self, sessions: SessionTable, workspace_of: Callable[[HttpRequest], str]) -> None:
        self._sessions = sessions
        self._limits = sessions.limits
        self._most_bytes = min(sessions.limits.body_bytes, sessions.settings.limits.frame_bytes)
        self._reading = 0
        self._openings = Pace(sessions.limits.opening_rate, sessions.limits.opening_rate * 10)
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
                    raise Refused(405, b"", [(b"allow", b"GET, POST, DELETE")])
        except StoreError as error:
            no = overdone(
                503,
                f"perdure serve cannot write its store ({error}): nothing was done.",
                "store_unavailable",
                30,
            )
            await respond(request, no.status, no.body, no.headers)
        except Refused as no:
            await respond(request, no.status, no.body, no.headers)
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
            raise refused(415, "send the body as JSON, with the header Content-Type: application/json.")
        version = request.header(b"mcp-protocol-version")
        is_modern = bool(version) and version not in eras.HANDSHAKE_VERSIONS
        takes_json, takes_stream = _accepted(request.headers)
        if not takes_json or not (takes_stream or is_modern):
            raise refused(406, "send the header Accept: application/json, text/event-stream.")
        frame = await self.read_body(request)
        message = decode(frame)
        if isinstance(message, Malformed):
            body = encode_error(message.id, message.code, message.reason)
            raise Refused(400, body)
        if is_modern:
            await self._post_modern(request, owner, frame, message, takes_stream)
        else:
            await self._post_handshake(request, owner, frame, message)

    def _too_large(self) -> Refused:
        most = f"{self._most_bytes:,}"
        return refused(
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
                        raise overdone(
                            503,
                            "too many large requests arrive at once: send this one again in a moment.",
                            "too_many_bytes",
                        )
                    parts.append(part)
        except Disconnected:
            raise refused(400, "the connection ended before the body arrived.") from None
        except TimeoutError:
            raise refused(408, "the body did not arrive in time: send the request again.") from None
        finally:
            self._reading -= size
        return _one_line(b"".join(parts))

    async def _post_handshake(
        self, request: HttpRequest, owner: str, frame: bytes, message: Request | Notification | Response
    ) -> None:
        name = request.header(b"mcp-session-id")
        opens = isinstance(message, Request) and message.method == "initialize" and not name
        session = self._opened(request, owner) if opens else self._known(name, owner)
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        if not isinstance(message, Request):
            session.post(frame, None)
            await respond(request, 202, b"", own)
            return
        self._check_crowd(len(session.exchanges))
        exchange = Exchange(message.id, _token(message), can_stream=True, is_resumable=True)
        session.post(frame, exchange, asked(message.method, message.params))
        await answering.answer(session, exchange, request, own)
        if opens and not session.kernel.state.session.initialized:
            self._sessions.end(session)

    def _opened(self, request: HttpRequest, owner: str) -> HttpSession:
        workspace = self._workspace_of(request)
        wait = self._openings.wait(owner or request.client[0], time.monotonic())
        if wait:
            raise overdone(
                429, "sessions are opened too fast: wait as long as Retry-After says.", "too_fast", wait
            )
        try:
            return self._sessions.open(workspace, owner)
        except TooManySessions:
            raise overdone(
                503, "too many sessions are open: end one, or wait.", "too_many_sessions", 30
            ) from None

    def _known(self, name: str, owner: str) -> HttpSession:
        if not name:
            raise refused(
                400,
                "the header Mcp-Session-Id is missing: send initialize first, then the id that its answer has.",
            )
        try:
            found = self._sessions.named_as(name, owner)
        except TooManySessions:
            raise overdone(
                503, "too many sessions are busy: send the request again in a moment.", "too_many_sessions", 5
            ) from None
        if found is None:
            raise refused(404, "Mcp-Session-Id names no open session: send initialize to open a new one.")
        return found

    def _check_crowd(self, waiting: int) -> None:
        if waiting >= self._limits.session_requests:
            raise overdone(
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
            raise refused(400, "the body must be one request or notification.")
        version = request.header(b"mcp-protocol-version")
        if isinstance(message, Notification):
            if version not in eras.MODERN_VERSIONS:
                _reject(None, ladder.unsupported(version))
            # A client cancels by closing its stream; by an id it could mean somebody else's call.
            await respond(request, 202, b"")
            return
        if (wrong := ladder.check(message, request.headers)) is not None:
            _reject(message, wrong)
        if message.method == "subscriptions/listen" and not takes_stream:
            raise refused(406, "send the header Accept: text/event-stream.")
        workspace = self._workspace_of(request)
        params = members(message.params) if message.params is not None else {}
        meta = members(params["_meta"])
        identity = f"{workspace}\n{owner}\n{bytes(meta.get(eras.META_CLIENT, b'')).decode()}"
        self._check_crowd(self._sessions.waiting(identity))
        state = params.get("requestState")
        ticket = decode_id(state) if state is not None else None
        question = asked(message.method, message.params)
        try:
            session = self._sessions.for_request(
                identity, workspace, message.id, question, ticket if isinstance(ticket, str) else None
            )
        except TooManySessions:
            raise overdone(
                503, "too many clients are busy: send the request again in a moment.", "too_many_sessions", 5
            ) from None
        if (
            message.method == "tools/call"
            and (wrong := _param_check(session, params, request.headers)) is not None
        ):
            _reject(message, wrong)
        exchange = Exchange(message.id, _token(message), can_stream=takes_stream)
        session.post(frame, exchange, question)
        if await answering.answer(session, exchange, request, []):
            params_of = msgspec.json.encode({"requestId": message.id})
            session.post(encode_notification("notifications/cancelled", params_of), None)

    # --- GET and DELETE --------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest, owner: str) -> None:
        version = request.header(b"mcp-protocol-version")
        if version and version not in eras.HANDSHAKE_VERSIONS:
            raise Refused(405, b"", [(b"allow", b"POST")])
        if not _accepted(request.headers)[1]:
            raise refused(406, "send the header Accept: text/event-stream.")
        session = self._known(request.header(b"mcp-session-id"), owner)
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        last = request.header(b"last-event-id")
        missed = resumption.missed_standing(session, last) if last else []
        if missed is not None:
            await answering.stand(session, missed, request, own)
        elif (found := resumption.resume(session, last)) is not None:
            await answering.resume(session, *found, request, own)
        else:
            raise refused(
                400, "Last-Event-ID names no stream of this session: leave it out to open a new one."
            )

    async def _delete(self, request: HttpRequest, owner: str) -> None:
        session = self._known(request.header(b"mcp-session-id"), owner)
        self._sessions.end(session)
        await respond(request, 204, b"")


def _reject(request: Request | None, wrong: ladder.Rejection) -> None:
    body = encode_error(request.id if request is not None else None, wrong.code, wrong.message, wrong.data)
    raise Refused(ladder.STATUS.get(wrong.code, 400), body)


def _param_check(session: HttpSession, params: Members, headers: Headers) -> ladder.Rejection | None:
    name = decode_id(params["name"]) if "name" in params else None
    tool = session.kernel.public.tool(name) if isinstance(name, str) else None
    try:
        return param_headers.check(tool.definition, params, headers) if tool is not None else None
    except (msgspec.MsgspecError, RecursionError):
        return None  # what cannot be read is refused by whoever takes it


def _one_line(body: bytes) -> bytes:
    """A frame must stand on one line behind us. What stands in strings is escaped and stays as it is."""
    body = body.strip()
    if b"\n" not in body and b"\r" not in body:
        return body
    try:
        return msgspec.json.format(body, indent=-1)
    except msgspec.MsgspecError:
        raise refused(400, "the body is not JSON.", PARSE_ERROR) from None


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
    given = ",".join(value.decode("latin-1") for key, value in headers if key == b"accept").lower()
    kinds = {part.split(";")[0].strip() for part in given.split(",")}
    everything = "*/*" in kinds
    return (
        everything or bool(kinds & {"application/json", "application/*"}),
        everything or bool(kinds & {"text/event-stream", "text/*"}),
    )
