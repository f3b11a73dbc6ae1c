"""What a client's frame means: both eras on one pipe, told apart request by request.

A request with the 2026 `_meta` envelope is of that era; `initialize` and everything else is of the
handshake era. A client may try one and go on with the other.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel import calls, client, metrics, routing, server_requests, subscriptions
from perdure.kernel.catalog import LISTS
from perdure.kernel.client_requests import Incoming, Refusal, open_request, refuse_if_closing, reply, scalar
from perdure.kernel.context import Context
from perdure.kernel.events import ClientFrame, ClientOversize
from perdure.kernel.state import Cataloguing, Draining, Live, Waiter
from perdure.protocol.eras import TASK_METHODS
from perdure.protocol.frames import (
    INVALID_REQUEST,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_error,
    encode_notification,
    members,
    salvage_id,
)

_encode = msgspec.json.encode
_ROOTS_CHANGED = "notifications/roots/list_changed"

# --- frames ------------------------------------------------------------------------------------------------


def on_frame(k: Context, event: ClientFrame) -> None:
    match decode(event.frame):
        case Request() as request:
            _on_request(k, request)
        case Notification() as note:
            _on_notification(k, note)
        case Response() as response:
            server_requests.on_client_answer(k, response)
        case Malformed() as bad:
            k.quarantine("client_malformed")
            if bad.is_response and bad.id in k.state.asks:
                error = Raw(
                    _encode({"code": INVALID_REQUEST, "message": "the client's answer is unreadable"})
                )
                server_requests.on_client_answer(k, Response(bad.id, error=error))
            else:
                identity = None if _outstanding(k, bad.id) else bad.id
                data = {"class": "protocol", "code": "malformed_frame", "detail": bad.reason}
                k.to_client(encode_error(identity, bad.code, bad.reason, data))


def on_oversize(k: Context, event: ClientOversize) -> None:
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
    how = "send it in chunks" + ("." if "chunks" in k.groups else " (tools action=enable group=chunks).")
    message = (
        f"the request did not run: its {event.size:,} bytes are more than {k.limits.frame_bytes:,}; {how}"
    )
    k.to_client(encode_error(identity, INVALID_REQUEST, message, data))


def _outstanding(k: Context, identity: RequestId | None) -> bool:
    if identity is None:
        return False
    return (
        identity in k.state.ids
        or any(w.public_id == identity for w in k.state.waiters)
        or any(s.public_id == identity for s in k.state.session.listens)
    )


# --- requests --------------------------------------------------------------------------------------------


def _on_request(k: Context, frame: Request) -> None:
    if _outstanding(k, frame.id):
        # Under its own id this refusal would pass for the answer to the first request.
        k.quarantine("duplicate_id")
        data = {"class": "protocol", "code": "duplicate_id", "id": frame.id}
        k.to_client(
            encode_error(
                None,
                INVALID_REQUEST,
                "this request id belongs to a call that still runs: use another id.",
                data,
            )
        )
        return
    serve(k, frame, waited=False)


def serve(k: Context, frame: Request, *, waited: bool) -> None:
    try:
        request = open_request(frame, waited=waited)
        client.notice_client(k, request)
        _route(k, request)
    except Refusal as refusal:
        metrics.accepted(k, frame.method)
        metrics.ended(k, frame.method, k.now, "host_error")
        k.to_client(encode_error(frame.id, refusal.code, refusal.message, refusal.data))


def resume(k: Context, waiter: Waiter) -> None:
    """Route a request again that waited for the first catalogs."""
    params = Raw(waiter.params) if waiter.params is not None else None
    extra = {key: Raw(value) for key, value in waiter.extra.items()}
    serve(k, Request(waiter.public_id, waiter.method, params, extra), waited=True)


def _route(k: Context, request: Incoming) -> None:
    method = request.method
    if (ticket := server_requests.ticket_of(request)) is not None:
        calls.resume_parked(k, request, ticket)
    elif method in LISTS:
        client.list_all(k, request)
    elif method == "tools/call":
        routing.call_tool(k, request)
    elif method == "ping":
        reply(k, request, b"{}")
    elif method == "initialize":
        client.initialize(k, request)
    elif method == "server/discover":
        client.discover(k, request)
    elif method == "subscriptions/listen":
        refuse_if_closing(k, request)
        metrics.accepted(k, method)
        subscriptions.open_listen(k, request)
    elif method == "logging/setLevel":
        routing.set_level(k, request)
    elif method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
        routing.resource(k, request)
    elif method == "prompts/get":
        routing.prompt(k, request)
    elif method == "completion/complete":
        routing.complete(k, request)
    elif method in TASK_METHODS:
        routing.task(k, request)
    else:
        routing.unknown(k, request)


# --- notifications ----------------------------------------------------------------------------------------


def _on_notification(k: Context, note: Notification) -> None:
    try:
        params = members(note.params) if note.params is not None else {}
    except ValueError:
        k.quarantine("client_malformed")
        return
    if note.method == "notifications/initialized":
        client.on_ready(k)
    elif note.method == "notifications/cancelled":
        identity = scalar(params.get("requestId"))
        if identity is not None:
            _cancel(k, identity)
    elif note.method == "notifications/progress":
        server_requests.on_client_progress(k, params)
    else:
        if note.method == _ROOTS_CHANGED:
            k.state.session.roots = None
        _broadcast(k, note)


def _cancel(k: Context, identity: RequestId) -> None:
    if subscriptions.close_listen(k, identity, answer=False):
        return
    # initialize cannot be cancelled; a list that still waits can.
    waiters = [w for w in k.state.waiters if w.public_id != identity or w.method == "initialize"]
    if len(waiters) != len(k.state.waiters):
        k.state.waiters = waiters
        return
    calls.cancel(k, identity)


def _broadcast(k: Context, note: Notification) -> None:
    frame = encode_notification(note.method, note.params, note.extra)
    # Roots are the one thing that a candidate may have been told already, and a 2026 server is never told.
    is_roots = note.method == _ROOTS_CHANGED
    heard_by = Cataloguing | Live | Draining if is_roots else Live | Draining
    for mount in k.state.mounts.values():
        for link in mount.links.values():
            if isinstance(link.stage, heard_by) and not (is_roots and link.era == "modern"):
                k.to_child(link, frame)
