"""One session as OpenTelemetry sees it, by the conventions for MCP: a span for each request and each try behind it.

    client ──traceparent in _meta──▶ SERVER span ──▶ CLIENT span of each try ──traceparent in _meta──▶ child

Only what is needed is read from frames, and nothing of a call's arguments or results is told. The spans are handed
over as plain records: who exports them is another process.
"""

from __future__ import annotations

import os
import re
import time
from binascii import hexlify
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ChildFrame,
    ChildLost,
    ChildStarted,
    ClientFrame,
    Effect,
    Event,
    ToChild,
    ToClient,
)
from perdure.kernel.state import ForCall, ForProbe, Modern
from perdure.protocol import eras
from perdure.protocol.frames import (
    Members,
    Request,
    RequestId,
    Response,
    decode,
    encode_members,
    encode_request,
    members_if_clear,
    text_if_clear,
)

MOST_OPEN: Final = 4096
MOST_TEXT: Final = 256
MOST_STATE: Final = 512
URI_METHODS: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})"
)
_REQUEST: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),"method":')

Tell = Callable[[dict[str, Any]], None]


class Span(msgspec.Struct):
    """One that has begun. `state` is the client's tracestate, which belongs to its traceparent."""

    trace: str
    span: str
    parent: str
    sampled: bool
    state: str
    name: str
    began: int
    attributes: dict[str, Any]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


class Tracing:
    """`tell` takes a record; `transport` is how the client speaks to us, in the words of the conventions."""

    def __init__(self, tell: Tell, kernel: Kernel, transport: dict[str, str]) -> None:
        self._tell = tell
        self._kernel = kernel
        self.transport = transport
        self._requests: dict[RequestId, Span] = {}
        self._tries: dict[int, tuple[str, int, Span]] = {}
        self._began = time.monotonic()
        self._children: dict[tuple[str, int], float] = {}

    # --- what happens ----------------------------------------------------------------------------------------

    def saw(self, event: Event) -> None:
        """Before the kernel handles it."""
        match event:
            case ClientFrame(frame):
                self._asked(frame)
            case ChildFrame(_, _, frame) if self._tries:
                self._child_answered(frame)
            case ChildStarted(mount, generation):
                self._children[mount, generation] = time.monotonic()
            case ChildLost(mount, generation, fault):
                self._child_lost(mount, generation, fault.code)
            case _:
                pass

    def does(self, effects: list[Effect]) -> list[Effect]:
        """What the kernel wants done: requests to children get their try's context."""
        if not self._requests:
            return effects
        return [self._done(effect) for effect in effects]

    def end(self) -> None:
        for identity in list(self._requests):
            self._finish(self._requests.pop(identity), "server", "cancelled")
        for _, _, span in self._tries.values():
            self._finish(span, "client", "cancelled")
        for mount, generation in list(self._children):
            self._child_lost(mount, generation, "")
        session = {"mcp.protocol.version": self._version(), **self.transport}
        self._tell({"session": "server", "seconds": time.monotonic() - self._began, "attributes": session})

    # --- the client's requests -------------------------------------------------------------------------------

    def _asked(self, frame: bytes) -> None:
        message = decode(frame)
        if (
            not isinstance(message, Request)
            or message.id in self._requests
            or len(self._requests) >= MOST_OPEN
        ):
            return
        params = members_if_clear(message.params)
        meta = members_if_clear(params.get("_meta"))
        trace, parent, sampled = _context(text_if_clear(meta.get("traceparent")))
        attributes = {"jsonrpc.request.id": str(message.id)[:MOST_TEXT], **self.transport}
        name = _describe(attributes, message.method, params)
        version = text_if_clear(meta.get(eras.META_VERSION)) or self._version()
        if version:
            attributes["mcp.protocol.version"] = version
        if not isinstance(self._kernel.state.session.phase, Modern) and eras.META_VERSION not in meta:
            attributes["mcp.session.id"] = self._kernel.state.session.session_id
        state = (text_if_clear(meta.get("tracestate")) or "")[:MOST_STATE] if parent else ""
        self._requests[message.id] = Span(
            trace, _new(8), parent, sampled, state, name, time.time_ns(), attributes
        )

    def _done(self, effect: Effect) -> Effect:
        if isinstance(effect, ToClient):
            self._answered(effect.frame)
        elif isinstance(effect, ToChild) and (found := _REQUEST.match(effect.frame)) is not None:
            return self._tried(effect, int(found[1]))
        return effect

    def _answered(self, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, Response) and message.id is not None:
            span = self._requests.pop(message.id, None)
            if span is not None:
                self._finish(span, "server", _failure(span.attributes, message, frame))

    # --- tries behind us -------------------------------------------------------------------------------------

    def _tried(self, effect: ToChild, child_id: int) -> Effect:
        route = self._kernel.state.routes.get(child_id)
        if route is None or not isinstance(route.purpose, ForCall | ForProbe):
            return effect
        call = self._kernel.state.calls.get(route.purpose.seq)
        parent = self._requests.get(call.public_id) if call is not None else None
        message = decode(effect.frame)
        if parent is None or not isinstance(message, Request):
            return effect
        params = members_if_clear(message.params)
        attributes: dict[str, Any] = {"network.transport": "pipe", "perdure.mount": effect.mount}
        attributes["perdure.generation"] = effect.generation
        attributes["jsonrpc.request.id"] = str(child_id)
        name = _describe(attributes, message.method, params)
        span = Span(
            parent.trace, _new(8), parent.span, parent.sampled, parent.state, name, time.time_ns(), attributes
        )
        self._tries[child_id] = (effect.mount, effect.generation, span)
        meta = members_if_clear(params.get("_meta"))
        meta["traceparent"] = Raw(msgspec.json.encode(span.traceparent))
        if not parent.parent:
            meta.pop("tracestate", None)  # it belongs to a parent that could not be read
        params["_meta"] = encode_members(meta)
        frame = encode_request(child_id, message.method, params, message.extra)
        return ToChild(effect.mount, effect.generation, frame)

    def _child_answered(self, frame: bytes) -> None:
        message = decode(frame)
        if isinstance(message, Response) and isinstance(message.id, int):
            found = self._tries.pop(message.id, None)
            if found is not None:
                self._finish(found[2], "client", _failure(found[2].attributes, message, frame))

    def _child_lost(self, mount: str, generation: int, code: str) -> None:
        for child_id, (of, number, span) in list(self._tries.items()):
            if (of, number) == (mount, generation):
                del self._tries[child_id]
                self._finish(span, "client", code or "cancelled")
        began = self._children.pop((mount, generation), None)
        if began is not None:
            attributes = {"network.transport": "pipe", "perdure.mount": mount}
            if code:
                attributes["error.type"] = code
            self._tell({"session": "client", "seconds": time.monotonic() - began, "attributes": attributes})

    # --- records ---------------------------------------------------------------------------------------------

    def _version(self) -> str:
        return self._kernel.state.session.version

    def _finish(self, span: Span, kind: str, failure: str) -> None:
        if failure:
            span.attributes["error.type"] = failure
        self._tell(
            {
                "span": kind,
                "name": span.name,
                "trace": span.trace,
                "id": span.span,
                "parent": span.parent,
                "sampled": span.sampled,
                "state": span.state,
                "began": span.began,
                "ended": time.time_ns(),
                "attributes": span.attributes,
            }
        )


def _context(given: str | None) -> tuple[str, str, bool]:
    """The trace and the parent of a request; one of its own where nothing can be read."""
    found = _PARENT.match(given) if given is not None else None
    if found is None:
        return _new(16), "", True
    return found[1], found[2], bool(int(found[3], 16) & 1)


def _describe(attributes: dict[str, Any], method: str, params: Members) -> str:
    """What is said of a method and its target; returns the span's name."""
    attributes["mcp.method.name"] = method[:MOST_TEXT]
    if method in URI_METHODS:
        attributes["mcp.resource.uri"] = (text_if_clear(params.get("uri")) or "")[:MOST_TEXT]
    target = (text_if_clear(params.get("name")) or "")[:MOST_TEXT]
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
        attributes["gen_ai.tool.name"] = target
    elif method == "prompts/get":
        attributes["gen_ai.prompt.name"] = target
    else:
        target = ""
    return f"{method[:MOST_TEXT]} {target}".rstrip()


def _failure(attributes: dict[str, Any], response: Response, frame: bytes) -> str:
    """The kind of error that an answer is; nothing where it is none. A tool that failed has failed."""
    if response.error is not None:
        code = bytes(members_if_clear(response.error).get("code", Raw(b"0"))).decode("ascii", "replace")[:32]
        attributes["rpc.response.status_code"] = code
        return code
    if b'"isError"' in frame and bytes(members_if_clear(response.result).get("isError", Raw(b""))) == b"true":
        return "tool_error"
    return ""


def _new(size: int) -> str:
    return hexlify(os.urandom(size)).decode()
