"""What a server's frame means: an answer, a request, a notification or noise, and which machine it concerns."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel import calls, metrics, mounts, server_requests, subscriptions, tasks
from perdure.kernel.catalog import CHANGED
from perdure.kernel.client_requests import scalar
from perdure.kernel.context import Context
from perdure.kernel.events import ChildFrame, ChildNoise
from perdure.kernel.state import (
    Draining,
    ForCall,
    ForDiscover,
    ForInitialize,
    ForList,
    ForListen,
    ForPing,
    ForProbe,
    ForSession,
    ForTask,
    Link,
    Live,
)
from perdure.protocol import eras
from perdure.protocol.faults import Fault
from perdure.protocol.frames import (
    Malformed,
    Members,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode_notification,
    members,
    salvage_id,
)

_LIST_CHANGES: Final = frozenset(CHANGED.values())
_TASK_STATUS: Final = frozenset({"notifications/tasks", "notifications/tasks/status"})


def on_frame(k: Context, event: ChildFrame) -> None:
    link = k.link(event.mount, event.generation)
    if link is None:
        k.quarantine("stale_generation")
        return
    match decode(event.frame):
        case Response() as response:
            _on_response(k, link, response)
        case Request() as request:
            mounts.throttle_if_chatty(k, link, 1)
            server_requests.on_child_request(k, link, request)
        case Notification() as notification:
            mounts.throttle_if_chatty(k, link, 1)
            _on_notification(k, link, notification)
        case Malformed() as bad:
            _malformed(k, link, bad)


def _malformed(k: Context, link: Link, bad: Malformed) -> None:
    """Noise is counted. An answer that cannot be read still ends the call it was for (law 17)."""
    k.quarantine("child_malformed")
    mounts.throttle_if_chatty(k, link, 1)
    if bad.is_response:
        _unreadable(k, link, bad.id, Fault("protocol", "unreadable_answer", link.generation, bad.reason))


def _unreadable(k: Context, link: Link, identity: RequestId | None, fault: Fault) -> None:
    route = k.state.routes.get(identity) if type(identity) is int else None
    if route is None or (route.mount, route.generation) != (link.mount, link.generation):
        return
    assert type(identity) is int
    match route.purpose:
        case ForCall(seq):
            del k.state.routes[identity]
            calls.on_unreadable_answer(k, k.state.calls[seq], fault)
        case _:
            _on_response(k, link, Response(identity, error=None))


def _on_response(k: Context, link: Link, response: Response) -> None:
    route = k.state.routes.get(response.id) if type(response.id) is int else None
    if route is None or (route.mount, route.generation) != (link.mount, link.generation):
        k.quarantine("unexpected_answer")  # late, duplicate or foreign (law 5)
        mounts.throttle_if_chatty(k, link, 1)
        return
    assert type(response.id) is int
    del k.state.routes[response.id]
    match route.purpose:
        case ForCall(seq):
            link.productive = True
            calls.on_answer(k, link, k.state.calls[seq], response)
        case ForProbe(seq):
            calls.on_probe_answer(k, link, k.state.calls[seq], response)
        case ForInitialize():
            mounts.on_initialize(k, link, response)
        case ForDiscover(is_retry):
            mounts.on_discover(k, link, response, is_retry=is_retry)
        case ForList(method, pages):
            mounts.on_page(k, link, method, pages, response)
        case ForPing():
            mounts.on_pong(k, link)
        case ForSession():
            pass
        case ForListen():
            subscriptions.on_stream_ended(k, link, response)
        case ForTask(handle):
            tasks.on_own_answer(k, link, handle, response)


def on_noise(k: Context, event: ChildNoise) -> None:
    link = k.link(event.mount, event.generation)
    if link is None:
        return
    if event.oversize:
        k.quarantine("child_oversize")
        fault = Fault("resource", "answer_too_large", link.generation, "the answer exceeds the frame limit")
        if _begins_as_answer(event.head):
            _unreadable(k, link, salvage_id(event.head, event.tail), fault)
    else:
        k.quarantine("child_noise", event.lines)
    mounts.throttle_if_chatty(k, link, event.lines)


def _begins_as_answer(head: bytes) -> bool:
    """Whether a frame cut short is an answer of the child's and not a request with an id of its own."""
    named = head.find(b'"method"')
    return named < 0 or any(0 <= head.find(member) < named for member in (b'"result"', b'"error"'))


def _on_notification(k: Context, link: Link, note: Notification) -> None:
    public = isinstance(link.stage, Live | Draining)
    try:
        params = members(note.params) if note.params is not None else {}
    except ValueError:
        k.quarantine("child_malformed")
        return
    if note.method == eras.FILE_FAULTS_METHOD:
        _file_faults(k, link, params)
    elif note.method in _LIST_CHANGES:
        mounts.on_lists_changed(k, link)
    elif note.method == "notifications/cancelled":
        identity = scalar(params.get("requestId"))
        if identity is not None:
            server_requests.on_child_cancel(k, link, identity)
    elif note.method == "notifications/progress":
        calls.on_progress(k, link, params)
    elif note.method == "notifications/subscriptions/acknowledged":
        subscriptions.on_acknowledged(k, link)
    elif not public:
        pass  # a candidate is not heard of before it serves
    elif note.method == "notifications/resources/updated":
        subscriptions.on_updated(k, link, params)
    elif note.method in _TASK_STATUS:
        tasks.on_status(k, link, params)
    elif note.method == "notifications/message":
        subscriptions.on_log_message(k, link, note, params)
    elif note.method == eras.NOTICE and k.specs[link.mount].builtin:
        mounts.on_notice(k, link, params)
    else:
        k.to_client(encode_notification(note.method, note.params, note.extra))


def _file_faults(k: Context, link: Link, params: Members) -> None:
    """Faults in the files that only the worker reads; the notification counts from the worker only."""
    try:
        faults = msgspec.json.decode(params.get("faults", Raw(b"[]")), type=list[Fault])
    except msgspec.MsgspecError:
        k.quarantine("child_malformed")
        return
    if k.specs[link.mount].builtin:
        settings_faults = k.state.file_faults.get("settings", [])
        metrics.found_in_files(k, "worker", [fault for fault in faults if fault not in settings_faults])
