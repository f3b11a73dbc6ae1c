"""Streamable HTTP at /mcp, in both eras: POST carries one message, GET holds a stream open, DELETE ends a session.

| | handshake era | 2026-07-28 |
|---|---|---|
| told by | no version header, or an older version | `MCP-Protocol-Version: 2026-07-28` |
| a session | by `Mcp-Session-Id`, which outlives a restart of ours | none |
| the client goes away | the call goes on; its answer waits for the next try | the call is cancelled |

Frames go on as they came: nothing here makes objects of them beyond what routing needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from perdure.model import eras
from perdure.model.frames import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    decode_id,
    encode_error,
    encode_notification,
    members,
)
from perdure.serve import ladder
from perdure.serve.exchange import Exchange
from perdure.serve.session import HttpSession, asked
from perdure.serve.sessions import Sessions, TooManySessions

DEFER_S: Final = 0.2
PING_S: Final = 15.0
BODY_S: Final = 60.0
JSON: Final = (b"content-type", b"application/json")
STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """An HTTP answer that says no, with a JSON-RPC error as its body."""

    def __init__(self, status: int, body: bytes, headers: Headers | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers or []


def refused(status: int, message: str, code: int = INVALID_REQUEST) -> Refused:
    return Refused(status, encode_error(None, code, message))


class Streamable:
    """The endpoint. `most_bytes` bounds a body, `workspace_of` finds the workspace that a URL asks for."""

    def __init__(self, sessions: Sessions, most_bytes: int, workspace_of: Callable[[Scope], str]) -> None:
        self._sessions = sessions
        self._most_bytes = most_bytes
        self._workspace_of = workspace_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            match scope["method"]:
                case "POST":
                    await self._post(scope, receive, send)
                case "GET":
                    await self._get(scope, receive, send)
                case "DELETE":
                    await self._delete(scope, send)
                case _:
                    raise Refused(405, b"", [(b"allow", b"GET, POST, DELETE")])
        except Refused as no:
            await respond(send, no.status, no.body, no.headers)

    # --- POST ------------------------------------------------------------------------------------------------

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        if not _header(headers, b"content-type").lower().startswith("application/json"):
            raise refused(415, "the content type must be application/json")
        version = _header(headers, b"mcp-protocol-version")
        is_modern = bool(version) and version not in eras.HANDSHAKE_VERSIONS
        takes_json, takes_stream = _accepted(headers)
        if not takes_json or not (takes_stream or is_modern):
            raise refused(406, "application/json and text/event-stream must be accepted")
        frame = await self._body(headers, receive)
        message = decode(frame)
        if isinstance(message, Malformed):
            body = encode_error(message.id, message.code, message.reason)
            raise Refused(400, body)
        if is_modern:
            await self._post_modern(scope, receive, send, frame, message, takes_stream)
        else:
            await self._post_handshake(scope, receive, send, frame, message)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        declared = _header(headers, b"content-length")
        if declared.isdigit() and int(declared) > self._most_bytes:
            raise refused(413, "the body is too large; send it in chunks")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise refused(400, "the body was not sent")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._most_bytes:
                        raise refused(413, "the body is too large; send it in chunks")
                    parts.append(part)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise refused(408, "the body took too long") from None
        return _one_line(b"".join(parts))

    async def _post_handshake(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        frame: bytes,
        message: Request | Notification | Response,
    ) -> None:
        name = _header(scope["headers"], b"mcp-session-id")
        opens = isinstance(message, Request) and message.method == "initialize" and not name
        session = self._opened(scope) if opens else self._known(name)
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        if not isinstance(message, Request):
            session.post(frame, None)
            await respond(send, 202, b"", own)
            return
        exchange = Exchange(message.id, _token(message), can_stream=True)
        session.post(frame, exchange, asked(message.method, message.params))
        await self._serve(session, exchange, receive, send, own)
        if opens and not session.kernel.state.session.initialized:
            self._sessions.end(session)

    def _opened(self, scope: Scope) -> HttpSession:
        try:
            return self._sessions.open(self._workspace_of(scope))
        except TooManySessions:
            raise refused(503, "too many sessions are open", INTERNAL_ERROR) from None

    def _known(self, name: str) -> HttpSession:
        if not name:
            raise refused(400, "the header Mcp-Session-Id is missing")
        found = self._sessions.named_as(name)
        if found is None:
            raise refused(404, "there is no such session")
        return found

    async def _post_modern(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        frame: bytes,
        message: Request | Notification | Response,
        takes_stream: bool,
    ) -> None:
        if isinstance(message, Response):
            raise refused(400, "the body must be one request or notification")
        version = _header(scope["headers"], b"mcp-protocol-version")
        if isinstance(message, Notification):
            if version not in eras.MODERN_VERSIONS:
                _reject(None, ladder.unsupported(version))
            # A client cancels by closing its stream; by an id it could mean somebody else's call.
            await respond(send, 202, b"")
            return
        if (wrong := ladder.check(message, scope["headers"])) is not None:
            _reject(message, wrong)
        if message.method == "subscriptions/listen" and not takes_stream:
            raise refused(406, "text/event-stream must be accepted")
        workspace = self._workspace_of(scope)
        params = members(message.params) if message.params is not None else {}
        meta = members(params["_meta"])
        identity = f"{workspace}\n{bytes(meta.get(eras.META_CLIENT, b'')).decode()}"
        state = params.get("requestState")
        ticket = decode_id(state) if state is not None else None
        question = asked(message.method, message.params)
        session = self._sessions.for_request(
            identity, workspace, message.id, question, ticket if isinstance(ticket, str) else None
        )
        exchange = Exchange(message.id, _token(message), can_stream=takes_stream)
        session.post(frame, exchange, question)
        is_gone = await self._serve(session, exchange, receive, send, [], is_modern=True)
        if is_gone:
            params_of = msgspec.json.encode({"requestId": message.id})
            session.post(encode_notification("notifications/cancelled", params_of), None)

    # --- answering -------------------------------------------------------------------------------------------

    async def _serve(
        self,
        session: HttpSession,
        exchange: Exchange,
        receive: Receive,
        send: Send,
        headers: Headers,
        *,
        is_modern: bool = False,
    ) -> bool:
        """Send what comes for an exchange until its answer. True where the client went away before."""
        await exchange.wait(DEFER_S)
        if exchange.is_answered and len(exchange.frames) == 1:
            frame = exchange.frames.popleft()
            status = _status(frame) if is_modern else 200
            try:
                await respond(send, status, frame, headers)
            except OSError:
                session.give_up(exchange)
                return True
            self._delivered(session, exchange)
            return False
        watcher = asyncio.ensure_future(_gone(receive))
        watcher.add_done_callback(lambda _: exchange.close())
        try:
            return await self._stream(session, exchange, send, headers, watcher, is_modern=is_modern)
        finally:
            watcher.cancel()

    async def _stream(
        self,
        session: HttpSession,
        exchange: Exchange,
        send: Send,
        headers: Headers,
        watcher: asyncio.Future[None],
        *,
        is_modern: bool,
    ) -> bool:
        """The response is still undecided: it becomes a stream with the first frame that is not its answer."""
        has_begun = False
        while True:
            await exchange.wait(PING_S)
            if watcher.done():
                session.give_up(exchange)
                return True
            if exchange.is_answered and len(exchange.frames) == 1 and not has_begun:
                frame = exchange.frames.popleft()
                await respond(send, _status(frame) if is_modern else 200, frame, headers)
                self._delivered(session, exchange)
                return False
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *headers]})
            if not exchange.frames:
                if exchange.is_closed:  # the session ended
                    await send({"type": "http.response.body", "body": b""})
                    return False
                await _event(send, b": still there\n\n")
            while exchange.frames:
                frame = exchange.frames.popleft()
                is_last = exchange.is_answered and not exchange.frames
                await _event(send, b"event: message\ndata: " + frame + b"\n\n", more=not is_last)
                if is_last:
                    self._delivered(session, exchange)
                    return False

    def _delivered(self, session: HttpSession, exchange: Exchange) -> None:
        if exchange.id is not None:
            session.delivered(exchange.id)

    # --- GET and DELETE --------------------------------------------------------------------------------------

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = scope["headers"]
        version = _header(headers, b"mcp-protocol-version")
        if version and version not in eras.HANDSHAKE_VERSIONS:
            raise Refused(405, b"", [(b"allow", b"POST")])
        if not _accepted(headers)[1]:
            raise refused(406, "text/event-stream must be accepted")
        session = self._known(_header(headers, b"mcp-session-id"))
        own = [(b"mcp-session-id", session.kernel.state.session.session_id.encode())]
        exchange = Exchange(None, None, can_stream=True)
        session.listen(exchange)
        watcher = asyncio.ensure_future(_gone(receive))
        watcher.add_done_callback(lambda _: exchange.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *own]})
            await _event(send, b": open\n\n")
            while not exchange.is_closed:
                await exchange.wait(PING_S)
                if not exchange.frames and not exchange.is_closed:
                    await _event(send, b": still there\n\n")
                while exchange.frames and not watcher.done():
                    await _event(send, b"event: message\ndata: " + exchange.frames.popleft() + b"\n\n")
            if not watcher.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            watcher.cancel()
            session.stop_listening(exchange)

    async def _delete(self, scope: Scope, send: Send) -> None:
        session = self._known(_header(scope["headers"], b"mcp-session-id"))
        self._sessions.end(session)
        await respond(send, 204, b"")


async def respond(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    found = [*(headers or ()), (b"content-length", str(len(body)).encode())]
    if body:
        found.append(JSON)
    await send({"type": "http.response.start", "status": status, "headers": found})
    await send({"type": "http.response.body", "body": body})


async def _event(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _reject(request: Request | None, wrong: ladder.Rejection) -> None:
    body = encode_error(request.id if request is not None else None, wrong.code, wrong.message, wrong.data)
    raise Refused(ladder.STATUS.get(wrong.code, 400), body)


def _status(frame: bytes) -> int:
    """What the era's table says for an error; a result is 200."""
    if b'"error":' not in frame[:600]:
        return 200
    message = decode(frame)
    if not isinstance(message, Response) or message.error is None:
        return 200
    code = members(message.error).get("code")
    return ladder.STATUS.get(cast("int", decode_id(code)) if code is not None else 0, 200)


def _one_line(body: bytes) -> bytes:
    """A frame must stand on one line behind us. What stands in strings is escaped and stays as it is."""
    body = body.strip()
    if b"\n" not in body and b"\r" not in body:
        return body
    try:
        return msgspec.json.format(body, indent=-1)
    except msgspec.MsgspecError:
        raise refused(400, "the body is not JSON", PARSE_ERROR) from None


def _token(request: Request) -> Any:
    if request.params is None or b'"progressToken"' not in bytes(request.params):
        return None
    try:
        meta = members(members(request.params)["_meta"])
        return decode_id(meta["progressToken"])
    except (ValueError, KeyError):
        return None


def _header(headers: Headers, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def _accepted(headers: Headers) -> tuple[bool, bool]:
    """Whether the client takes JSON, and whether it takes a stream."""
    given = ",".join(value.decode("latin-1") for key, value in headers if key == b"accept").lower()
    kinds = {part.split(";")[0].strip() for part in given.split(",")}
    everything = "*/*" in kinds
    return (
        everything or bool(kinds & {"application/json", "application/*"}),
        everything or bool(kinds & {"text/event-stream", "text/*"}),
    )
