"""What a client's frame means: both eras on one pipe, told apart request by request.

A request with the 2026 `_meta` envelope is of that era; `initialize` and everything else is of the
handshake era. A client may try one and go on with the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from perdure.kernel import asks, ledger, metrics, mounts, ops, rollout, streams
from perdure.kernel.catalog import LISTS
from perdure.kernel.events import ClientOversize
from perdure.kernel.state import Cataloguing, Draining, Invocation, Live, Starting, Waiter, Waiting
from perdure.model import eras
from perdure.model.eras import Era
from perdure.model.frames import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Malformed,
    Members,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    decode_id,
    encode_error,
    encode_notification,
    encode_result,
    members,
    salvage_id,
)

if TYPE_CHECKING:
    from perdure.kernel.core import Kernel

_encode = msgspec.json.encode
_string = msgspec.json.Decoder(str)


class Incoming(msgspec.Struct):
    """A request of the client's, opened as far as routing needs."""

    id: RequestId
    method: str
    raw: bytes | None
    params: Members
    meta: Members
    era: Era
    token: RequestId | None
    extra: dict[str, bytes]
    waited: bool = False


class _Refusal(Exception):
    """The request is answered with this error and goes no further."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class _Initialize(msgspec.Struct):
    protocolVersion: str
    capabilities: Raw = Raw(b"{}")
    clientInfo: Raw = Raw(b'{"name":"unknown","version":"0"}')


# --- frames ------------------------------------------------------------------------------------------------


def on_frame(k: Kernel, frame: bytes) -> None:
    match decode(frame):
        case Request() as request:
            _on_request(k, request)
        case Notification() as note:
            _on_notification(k, note)
        case Response() as response:
            asks.on_client_answer(k, response)
        case Malformed() as bad:
            k.quarantine("client_malformed")
            if bad.is_response and bad.id in k.state.asks:
                error = Raw(
                    _encode({"code": INVALID_REQUEST, "message": "the client's answer is unreadable"})
                )
                asks.on_client_answer(k, Response(bad.id, error=error))
            else:
                identity = None if _outstanding(k, bad.id) else bad.id
                data = {"class": "protocol", "code": "malformed_frame", "detail": bad.reason}
                k.to_client(encode_error(identity, bad.code, bad.reason, data))


def on_oversize(k: Kernel, event: ClientOversize) -> None:
    """Too long to read, but its sender is waiting: answer under its id where that can be seen (law 17)."""
    k.quarantine("client_oversize")
    identity = salvage_id(event.head, event.tail)
    if _outstanding(k, identity):
        identity = None
    data = {
        "class": "resource",
        "code": "frame_too_large",
        "bytes": event.size,
        "limit": k.limits.frame_bytes,
        "outcome": "not_started",
        "retry": "never",
        "hint": "send it in chunks",
    }
    k.to_client(encode_error(identity, INVALID_REQUEST, "frame too large", data))


def _outstanding(k: Kernel, identity: RequestId | None) -> bool:
    if identity is None:
        return False
    return (
        identity in k.state.ids
        or any(w.public_id == identity for w in k.state.waiters)
        or any(s.public_id == identity for s in k.state.session.listens)
    )


# --- requests --------------------------------------------------------------------------------------------------


def _on_request(k: Kernel, frame: Request) -> None:
    if _outstanding(k, frame.id):
        # Under its own id this refusal would pass for the answer to the first request.
        k.quarantine("duplicate_id")
        data = {"class": "protocol", "code": "duplicate_id", "id": frame.id}
        k.to_client(encode_error(None, INVALID_REQUEST, "request id is already in use", data))
        return
    _serve(k, frame, waited=False)


def _serve(k: Kernel, frame: Request, *, waited: bool) -> None:
    try:
        _route(k, _open(k, frame, waited=waited))
    except _Refusal as refusal:
        metrics.accepted(k, frame.method)
        metrics.ended(k, frame.method, k.now, "host_error")
        k.to_client(encode_error(frame.id, refusal.code, refusal.message, refusal.data))


def _open(k: Kernel, frame: Request, *, waited: bool) -> Incoming:
    raw = bytes(frame.params) if frame.params is not None else None
    try:
        params = members(raw) if raw is not None else {}
        meta = members(params["_meta"]) if "_meta" in params else {}
    except ValueError:
        raise _Refusal(INVALID_PARAMS, "params are ambiguous or not an object") from None
    is_modern = frame.method != "initialize" and (eras.META_VERSION in meta or frame.method in _MODERN_ONLY)
    token = _scalar(meta.get("progressToken"))
    extra = {key: bytes(value) for key, value in frame.extra.items()}
    incoming = Incoming(
        frame.id,
        frame.method,
        raw,
        params,
        meta,
        "modern" if is_modern else "handshake",
        token,
        extra,
        waited,
    )
    if is_modern:
        _check_envelope(k, incoming)
    _notice_client(k, incoming)
    return incoming


_ROOTS_CHANGED = "notifications/roots/list_changed"
_MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})
_OPENING = frozenset({"initialize", "server/discover"})


def _scalar(raw: Raw | None) -> RequestId | None:
    return decode_id(raw) if raw is not None else None


def _check_envelope(k: Kernel, request: Incoming) -> None:
    missing = [key for key in (eras.META_VERSION, eras.META_CAPABILITIES) if key not in request.meta]
    if missing:
        raise _Refusal(INVALID_PARAMS, f"params._meta is missing {', '.join(missing)}")
    version = _scalar(request.meta[eras.META_VERSION])
    if not isinstance(version, str):
        raise _Refusal(INVALID_PARAMS, "the protocol version must be a string")
    if version not in eras.MODERN_VERSIONS:
        data = {"supported": list(eras.MODERN_VERSIONS), "requested": version}
        raise _Refusal(eras.UNSUPPORTED_VERSION, "unsupported protocol version", data)


def _notice_client(k: Kernel, request: Incoming) -> None:
    """The first request shows who is there; what depends on that can start now."""
    session = k.state.session
    if request.era == "modern" and not session.initialized:
        session.modern = True
        session.capabilities = bytes(request.meta[eras.META_CAPABILITIES])
        info = request.meta.get(eras.META_CLIENT)
        if info is not None and bytes(info)[:1] == b"{":
            session.client_info = bytes(info)
            session.client_name = _client_name(info)
    if request.method in ("initialize", "ping"):
        return
    if request.era == "handshake":
        _go_live(k)  # it works already: some clients forget to say that they are ready
    if not session.seen:
        session.seen = True
        mounts.start_all(k)


def _client_name(info: Raw | bytes) -> str:
    try:
        return _string.decode(members(info)["name"])[:128]
    except (ValueError, KeyError, msgspec.MsgspecError):
        return "unknown"


def _route(k: Kernel, request: Incoming) -> None:
    method = request.method
    if method in LISTS:
        _list(k, request)
    elif method == "tools/call":
        _call_tool(k, request)
    elif method == "ping":
        reply(k, request, b"{}")
    elif method == "initialize":
        _initialize(k, request)
    elif method == "server/discover":
        _discover(k, request)
    elif method == "subscriptions/listen":
        _refuse_if_closing(k, request)
        metrics.accepted(k, method)
        streams.open_listen(k, request)
    elif method == "logging/setLevel":
        _set_level(k, request)
    elif method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
        _resource(k, request)
    elif method == "prompts/get":
        _prompt(k, request)
    elif method == "completion/complete":
        _complete(k, request)
    else:
        _unknown(k, request)


def _refuse_if_closing(k: Kernel, request: Incoming) -> None:
    """No new work at the end of a session; what the host answers itself it answers to the last."""
    if k.state.session.closing is not None and not request.waited:
        data = {"class": "process", "code": "closing", "outcome": "not_started", "retry": "later"}
        raise _Refusal(INVALID_REQUEST, "the session is closing", data)


def reply(k: Kernel, request: Incoming, result: bytes) -> None:
    """Answer a request that the host serves itself."""
    metrics.accepted(k, request.method)
    _send(k, request.id, request.method, request.era, result, k.now)


def _send(k: Kernel, identity: RequestId, method: str, era: Era, result: bytes, accepted_at: float) -> None:
    metrics.ended(k, method, accepted_at, "success")
    body = eras.modern_result(method, result) if era == "modern" else result
    k.to_client(encode_result(identity, body))


# --- opening a session ----------------------------------------------------------------------------------------------


def _initialize(k: Kernel, request: Incoming) -> None:
    session = k.state.session
    if session.initialized:
        raise _Refusal(INVALID_REQUEST, "the session is already initialized")
    try:
        wanted = msgspec.json.decode(request.raw or b"{}", type=_Initialize)
        members(wanted.capabilities)
        members(wanted.clientInfo)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _Refusal(INVALID_PARAMS, f"initialize: {error}") from None
    session.initialized = True
    session.seen = True
    session.version = eras.negotiate(wanted.protocolVersion)
    session.capabilities = bytes(wanted.capabilities)
    session.client_info = bytes(wanted.clientInfo)
    session.client_name = _client_name(wanted.clientInfo)
    k.note("session", phase="initialize", era="handshake", client=session.client_name)
    mounts.start_all(k)
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, _startup_grace(k))


def _discover(k: Kernel, request: Incoming) -> None:
    k.note("session", phase="discover", era="modern", client=k.state.session.client_name)
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, _startup_grace(k))


def _startup_grace(k: Kernel) -> float:
    """Only a wrapped server must be asked who it is; the host itself answers at once."""
    return max(spec.startup_s for spec in k.specs.values()) if k.wrapped else 0.0


def _opening_result(k: Kernel, method: str) -> bytes:
    result: dict[str, object] = {"capabilities": Raw(k.public.capabilities())}
    if method == "initialize":
        result = {
            "protocolVersion": k.state.session.version,
            **result,
            "serverInfo": Raw(k.public.server_info()),
        }
    else:
        result = {
            "supportedVersions": list(eras.SUPPORTED_VERSIONS),
            **result,
            "_meta": {eras.META_SERVER: Raw(k.public.server_info())},
        }
    instructions = k.public.instructions()
    if instructions:
        result["instructions"] = instructions
    return _encode(result)


# --- lists, and what waits for the first catalog ----------------------------------------------------------------------


def _list(k: Kernel, request: Incoming) -> None:
    if "cursor" in request.params and bytes(request.params["cursor"]) != b"null":
        raise _Refusal(INVALID_PARAMS, "unknown cursor")
    rollout.on_refresh(k)
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, k.limits.list_grace_s)


def _wait_or_answer(k: Kernel, request: Incoming, grace: float) -> None:
    waiter = _waiter(k, request, grace)
    closing = k.state.session.closing is not None
    full = len(k.state.waiters) >= k.limits.pending
    if grace > 0 and not (_settled(k) or closing or full):
        k.state.waiters.append(waiter)
    else:
        _answer_waiter(k, waiter)


def _waiter(k: Kernel, request: Incoming, grace: float) -> Waiter:
    return Waiter(request.id, request.method, request.raw, request.era, k.now + grace, k.now, request.extra)


def _settled(k: Kernel) -> bool:
    return all(mount.settled for mount in k.state.mounts.values())


def _answer_waiter(k: Kernel, waiter: Waiter) -> None:
    if waiter.method in LISTS:
        result = k.public.listing(waiter.method, waiter.era)
    elif waiter.method in _OPENING:
        result = _opening_result(k, waiter.method)
    else:
        params = Raw(waiter.params) if waiter.params is not None else None
        extra = {key: Raw(value) for key, value in waiter.extra.items()}
        _serve(k, Request(waiter.public_id, waiter.method, params, extra), waited=True)
        return
    _send(k, waiter.public_id, waiter.method, waiter.era, result, waiter.accepted_at)


def flush_waiters(k: Kernel) -> None:
    if k.state.waiters and _settled(k):
        answer_waiting(k)


def answer_waiting(k: Kernel) -> None:
    waiting, k.state.waiters = k.state.waiters, []
    for waiter in waiting:
        _answer_waiter(k, waiter)


def tick(k: Kernel) -> None:
    due = [w for w in k.state.waiters if w.until <= k.now]
    if not due:
        return
    k.state.waiters = [w for w in k.state.waiters if w.until > k.now]
    for waiter in due:
        _answer_waiter(k, waiter)
    for mount in k.state.mounts.values():
        mount.settled = True  # from now on a catalog that comes is news
    flush_waiters(k)


# --- requests for a server ------------------------------------------------------------------------------------------------


def _accept(k: Kernel, request: Incoming, mount: str, name: str) -> None:
    _refuse_if_closing(k, request)
    level = _scalar(request.meta.get(eras.META_LOG_LEVEL))
    call = Invocation(
        seq=k.mint(),
        public_id=request.id,
        method=request.method,
        params=request.raw,
        mount=mount,
        era=request.era,
        name=name,
        accepted_at=k.now,
        deadline=k.now,
        timeout=k.specs[mount].call_s,
        extra=request.extra,
        token=request.token,
    )
    if request.era == "modern":
        call.abilities = asks.abilities(bytes(request.meta[eras.META_CAPABILITIES]))
        if isinstance(level, str) and level in eras.LOG_LEVELS:
            call.log_level = level
            _raise_level(k, mount, level)
    ledger.accept(k, call)


def _raise_level(k: Kernel, name: str, level: str) -> None:
    """A handshake server logs at one level for everyone: the most detailed that anyone asked for."""
    session = k.state.session
    known = session.log_level
    if not known or eras.LOG_LEVELS.index(level) < eras.LOG_LEVELS.index(known):
        session.log_level = level
        link = mounts.serving_link(k.state.mounts[name])
        if link is not None:
            streams.set_level(k, link, level)


def _text(request: Incoming, key: str) -> str:
    value = _scalar(request.params.get(key))
    if not isinstance(value, str):
        raise _Refusal(INVALID_PARAMS, f"{request.method} needs a string {key!r}")
    return value


def _call_tool(k: Kernel, request: Incoming) -> None:
    name = _text(request, "name")
    ticket = asks.ticket_of(request) if request.era == "modern" else None
    if ticket is not None:
        asks.resume(k, request, ticket)
        return
    entry = k.public.tool(name)
    if entry is None:
        near = k.public.nearest_tool(name)
        hint = f"; did you mean {near}?" if near else ""
        raise _Refusal(INVALID_PARAMS, f"unknown tool: {name[:64]}{hint}")
    if entry.mount == ops.MOUNT:
        reply(k, request, ops.call(k, name, request.params.get("arguments")))
    elif k.specs[entry.mount].builtin:
        _accept(k, request, entry.mount, name)  # the worker shapes results by the name it was called by
    else:
        _accept(k, request, entry.mount, entry.name)


def _resource(k: Kernel, request: Incoming) -> None:
    uri = _text(request, "uri")
    ticket = asks.ticket_of(request) if request.era == "modern" else None
    if ticket is not None:
        asks.resume(k, request, ticket)
        return
    owner = k.public.resource_owner(uri)
    if owner is None and _may_find_owner(k, request):
        return
    if owner is None:
        code = INVALID_PARAMS if request.era == "modern" else eras.RESOURCE_NOT_FOUND
        raise _Refusal(code, "no server has this resource", {"uri": uri[:512]})
    if (
        request.method == "resources/subscribe"
        and len(k.state.session.subscriptions) >= k.limits.subscriptions
    ):
        raise _Refusal(INVALID_REQUEST, "too many subscriptions")
    _accept(k, request, owner, uri)


def _may_find_owner(k: Kernel, request: Incoming) -> bool:
    """While a server that starts has not said what it offers, nobody can say that none has it: wait."""
    coming = any(
        m.catalog is None and isinstance(m.phase, Starting | Waiting) for m in k.state.mounts.values()
    )
    full = len(k.state.waiters) >= k.limits.pending
    if request.waited or not coming or full or k.state.session.closing is not None:
        return False
    k.state.waiters.append(_waiter(k, request, k.limits.list_grace_s))
    return True


def _prompt(k: Kernel, request: Incoming) -> None:
    name = _text(request, "name")
    ticket = asks.ticket_of(request) if request.era == "modern" else None
    if ticket is not None:
        asks.resume(k, request, ticket)
        return
    found = k.public.prompt(name)
    if found is None:
        raise _Refusal(INVALID_PARAMS, f"unknown prompt: {name[:64]}")
    _accept(k, request, *found)


def _complete(k: Kernel, request: Incoming) -> None:
    try:
        reference = members(request.params["ref"])
    except (KeyError, ValueError):
        raise _Refusal(INVALID_PARAMS, "completion/complete needs a ref") from None
    name, uri = _scalar(reference.get("name")), _scalar(reference.get("uri"))
    found: tuple[str, str] | None = None
    if isinstance(name, str):
        found = k.public.prompt(name)
    elif isinstance(uri, str):
        owner = k.public.resource_owner(uri)
        found = (owner, "") if owner is not None else None
        if found is None and _may_find_owner(k, request):
            return
    if found is None:
        raise _Refusal(INVALID_PARAMS, "no server has what is to be completed")
    _accept(k, request, *found)


def _set_level(k: Kernel, request: Incoming) -> None:
    level = _text(request, "level")
    if level not in eras.LOG_LEVELS:
        raise _Refusal(INVALID_PARAMS, "unknown log level")
    if k.wrapped:
        _accept(k, request, next(iter(k.specs)), level)
        return
    k.state.session.log_level = level
    for mount in k.state.mounts.values():
        link = mounts.serving_link(mount)
        if link is not None:
            streams.set_level(k, link, level)
    reply(k, request, b"{}")


def _unknown(k: Kernel, request: Incoming) -> None:
    """A method the host does not know goes on untouched, where it is clear to whom."""
    chosen = _scalar(request.meta.get("perdure/mount"))
    able = [spec.name for spec in k.specs.values() if not spec.builtin]
    if isinstance(chosen, str) and chosen in k.specs:
        _accept(k, request, chosen, "")
    elif len(able) == 1:
        _accept(k, request, able[0], "")
    else:
        raise _Refusal(METHOD_NOT_FOUND, "method not found", {"method": request.method[:128]})


# --- notifications ----------------------------------------------------------------------------------------


def _on_notification(k: Kernel, note: Notification) -> None:
    try:
        params = members(note.params) if note.params is not None else {}
    except ValueError:
        k.quarantine("client_malformed")
        return
    if note.method == "notifications/initialized":
        _go_live(k)
    elif note.method == "notifications/cancelled":
        identity = _scalar(params.get("requestId"))
        if identity is not None:
            _cancel(k, identity)
    elif note.method == "notifications/progress":
        asks.on_client_progress(k, params)
    else:
        if note.method == _ROOTS_CHANGED:
            k.state.session.roots = None
        _broadcast(k, note)


def _go_live(k: Kernel) -> None:
    """The client has its answer to `initialize` and is ready to be asked."""
    session = k.state.session
    if session.live or not session.initialized or any(w.method == "initialize" for w in k.state.waiters):
        return
    session.live = True
    for mount in k.state.mounts.values():
        for link in mount.links.values():
            if isinstance(link.stage, Live | Draining):
                asks.resume_deferred(k, link)


def _cancel(k: Kernel, identity: RequestId) -> None:
    if streams.close_listen(k, identity, answer=False):
        return
    # initialize cannot be cancelled; a list that still waits can.
    kept = [w for w in k.state.waiters if w.public_id != identity or w.method == "initialize"]
    if len(kept) != len(k.state.waiters):
        k.state.waiters = kept
        return
    ledger.cancel(k, identity)


def _broadcast(k: Kernel, note: Notification) -> None:
    frame = encode_notification(note.method, note.params, note.extra)
    # Roots are the one thing that a candidate may have been told already.
    heard_by = Cataloguing | Live | Draining if note.method == _ROOTS_CHANGED else Live | Draining
    for mount in k.state.mounts.values():
        for link in mount.links.values():
            if isinstance(link.stage, heard_by) and link.era == "handshake":
                k.to_child(link, frame)
