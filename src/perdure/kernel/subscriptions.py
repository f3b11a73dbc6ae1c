"""What the client wants to hear of, and what servers announce: subscriptions, log levels, changed lists.

A handshake client hears of a change by notification; a 2026 client only on a stream that it opened. What a server cannot be
trusted to keep is handed to its successor (law 13).

| Link.stream (a 2026 server) | event | next |
|---|---|---|
| NoStream | it serves | StreamAsked |
| StreamAsked | acknowledged | StreamOpen |
| StreamAsked, StreamOpen, StreamEnded | the client wants to hear of other resources | StreamAsked, the old one cancelled |
| StreamOpen | the server ends it | StreamAsked, and its lists are read again; StreamEnded after too many times |
| StreamAsked | the server refuses it | StreamEnded |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel import metrics
from perdure.kernel.catalog import CHANGED
from perdure.kernel.child_requests import send_request
from perdure.kernel.client_requests import Incoming, scalar
from perdure.kernel.context import Context
from perdure.kernel.extensions import is_page
from perdure.kernel.internal_events import ListsDoubted
from perdure.kernel.state import (
    AtServer,
    ForListen,
    ForSession,
    InFlight,
    Invocation,
    Link,
    Listen,
    Live,
    NoStream,
    Overdue,
    StreamAsked,
    StreamEnded,
    StreamOpen,
)
from perdure.kernel.task_frames import declares_tasks, declaring_tasks
from perdure.protocol import eras
from perdure.protocol.frames import (
    INVALID_PARAMS,
    Members,
    Notification,
    RequestId,
    Response,
    encode_error,
    encode_members,
    encode_notification,
    encode_result,
    members,
)

_encode = msgspec.json.encode

_SUBSCRIBING: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})
_FILTER: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


class _Filter(msgspec.Struct):
    toolsListChanged: bool | None = None
    promptsListChanged: bool | None = None
    resourcesListChanged: bool | None = None
    resourceSubscriptions: list[str] | None = None
    taskIds: list[str] | None = None


# --- to the client ---------------------------------------------------------------------------------------


def announce(k: Context, method: str, kind: str, params: Members | None = None, uri: str = "") -> None:
    """Notify a handshake client that is ready, and each stream of a 2026 client that asked for it."""
    session = k.state.session
    if session.live:
        k.to_client(encode_notification(method, encode_members(params) if params else None))
    for listen in session.listens:
        if kind in listen.kinds or (uri and uri in listen.uris):
            meta = encode_members({eras.META_SUBSCRIPTION: Raw(_encode(listen.public_id))})
            k.to_client(encode_notification(method, encode_members({**(params or {}), "_meta": meta})))


def announce_lists(k: Context, kinds: Sequence[str]) -> None:
    for kind in kinds:
        announce(k, CHANGED[kind], kind)


def on_updated(k: Context, link: Link, params: Members) -> None:
    inner = scalar(params.get("uri"))
    if not isinstance(inner, str):
        return
    uri = k.public.addresses().public(link.mount, inner)
    if uri != inner:
        params = {**params, "uri": Raw(_encode(uri))}
    announce(k, "notifications/resources/updated", "", _without_subscription(params), uri)


def _without_subscription(params: Members) -> Members:
    if "_meta" not in params:
        return params
    try:
        meta = members(params["_meta"])
    except ValueError:
        return {key: value for key, value in params.items() if key != "_meta"}
    meta.pop(eras.META_SUBSCRIPTION, None)
    others = {key: value for key, value in params.items() if key != "_meta"}
    return {**others, "_meta": encode_members(meta)} if meta else others


def on_log_message(k: Context, link: Link, note: Notification, params: Members) -> None:
    """Log messages: a 2026 client gets them only while a request of its own asks for that level."""
    if k.state.session.initialized:
        k.to_client(encode_notification(note.method, note.params, note.extra))
        return
    level = scalar(params.get("level"))
    for call in k.state.calls.values():
        wanted = call.log_level in eras.LOG_LEVELS and level in eras.LOG_LEVELS
        if wanted and call.mount == link.mount and isinstance(call.state, InFlight | Overdue):
            assert isinstance(level, str)
            if eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(call.log_level):
                k.to_client(encode_notification(note.method, note.params, note.extra))
                return


# --- what the client wants to hear -----------------------------------------------------------------------


def open_listen(k: Context, request: Incoming) -> None:
    """A 2026 client opens its stream: the acknowledgement comes first, the answer only when it ends."""
    try:
        wanted = msgspec.json.decode(request.params.get("notifications", Raw(b"{}")), type=_Filter)
    except msgspec.MsgspecError:
        metrics.ended(k, request.method, k.now, "host_error")
        k.to_client(
            encode_error(
                request.id, INVALID_PARAMS, "notifications must be an object that says which changes to send."
            )
        )
        return
    session = k.state.session
    if wanted.taskIds is not None and not declares_tasks(request.meta.get(eras.META_CAPABILITIES)):
        data: dict[str, object] = {"requiredCapabilities": {"extensions": {eras.TASKS: {}}}}
        metrics.ended(k, request.method, k.now, "host_error")
        message = f"taskIds needs the client capability {eras.TASKS}."
        k.to_client(encode_error(request.id, eras.MISSING_CAPABILITY, message, data))
        return
    uris = tuple(wanted.resourceSubscriptions or ())
    known = (k.state.tasks.get(handle) for handle in dict.fromkeys(wanted.taskIds or ()))
    tasks = tuple(task.handle for task in known if task is not None and task.owner == k.owner)
    if len(session.listens) >= k.limits.listens or len(uris) > k.limits.subscriptions:
        metrics.ended(k, request.method, k.now, "host_error")
        most, each = k.limits.listens, k.limits.subscriptions
        message = f"at most {most} streams with {each} resources each are allowed: end one first."
        k.to_client(encode_error(request.id, INVALID_PARAMS, message))
        return
    kinds = tuple(kind for field, kind in _FILTER.items() if getattr(wanted, field))
    session.listens.append(Listen(request.id, kinds, uris, tasks))
    honored: dict[str, object] = {field: True for field, kind in _FILTER.items() if kind in kinds}
    if uris:
        honored["resourceSubscriptions"] = list(uris)
    if tasks:
        honored["taskIds"] = list(tasks)
    params: Members = {
        "notifications": Raw(_encode(honored)),
        "_meta": encode_members({eras.META_SUBSCRIPTION: Raw(_encode(request.id))}),
    }
    k.to_client(encode_notification("notifications/subscriptions/acknowledged", encode_members(params)))
    sync_all(k)


def close_listen(k: Context, public_id: RequestId, *, answer: bool) -> bool:
    session = k.state.session
    for listen in session.listens:
        if listen.public_id == public_id:
            session.listens.remove(listen)
            if answer:
                meta = encode_members(
                    {
                        eras.META_SUBSCRIPTION: Raw(_encode(public_id)),
                        eras.META_SERVER: Raw(k.public.identity()),
                    }
                )
                result = encode_members({"resultType": Raw(b'"complete"'), "_meta": meta})
                k.to_client(encode_result(public_id, result))
            sync_all(k)
            return True
    return False


def close_all(k: Context) -> None:
    """The session ends: every open stream gets the answer it was waiting for."""
    for listen in list(k.state.session.listens):
        close_listen(k, listen.public_id, answer=True)


def on_session_call(k: Context, link: Link, call: Invocation) -> None:
    """Keep what the call changed in the session, once it succeeded and before the client hears of it."""
    session = k.state.session
    inner = k.public.addresses().inner(call.mount, call.name)
    if call.method == "resources/subscribe":
        session.subscriptions[call.name] = call.mount
        link.subscribed = sorted({*link.subscribed, inner})
    elif call.method == "resources/unsubscribe":
        session.subscriptions.pop(call.name, None)
        link.subscribed = [uri for uri in link.subscribed if uri != inner]
    elif call.method == "logging/setLevel":
        session.log_level = call.name
    else:
        if is_page(inner) and call.mount not in session.apps:
            session.apps.append(call.mount)
        return
    mount = k.state.mounts[link.mount]
    if link.era == "modern" and call.method in _SUBSCRIBING:
        _open_stream(k, link, k.wanted_uris(mount))
    successor = mount.serving_link()
    if successor is not None and successor is not link:
        restore(k, successor)  # fenced in before this answer: it was handed the session as it was then


# --- to the servers --------------------------------------------------------------------------------------


def restore(k: Context, link: Link) -> None:
    """A new generation takes up what its predecessor had been told."""
    if k.state.session.log_level:
        set_level(k, link, k.state.session.log_level)
    sync(k, link)


def set_level(k: Context, link: Link, level: str) -> None:
    if link.era == "handshake" and "logging" in members(link.catalog.capabilities):
        _tell(k, link, "logging/setLevel", {"level": Raw(_encode(level))})


def raise_level(k: Context, name: str, level: str) -> None:
    """A handshake server has one log level for all requests: the most detailed one that was asked for."""
    session = k.state.session
    current = session.log_level
    if not current or eras.LOG_LEVELS.index(level) < eras.LOG_LEVELS.index(current):
        session.log_level = level
        link = k.state.mounts[name].serving_link()
        if link is not None:
            set_level(k, link, level)


def _tell(k: Context, link: Link, method: str, params: Members) -> None:
    """Hand session state over. The answer changes nothing, so a server that gives none costs a bounded memory."""
    unanswered = [
        identity
        for identity, route in k.state.routes.items()
        if isinstance(route.purpose, ForSession)
        and (route.mount, route.generation) == (link.mount, link.generation)
    ]
    if len(unanswered) >= k.limits.subscriptions:
        del k.state.routes[unanswered[0]]
    send_request(k, link, method, params, ForSession())


def sync_all(k: Context) -> None:
    for mount in k.state.mounts.values():
        link = mount.serving_link()
        if link is not None:
            sync(k, link)


def sync(k: Context, link: Link) -> None:
    wanted = k.wanted_uris(k.state.mounts[link.mount])
    if link.era == "modern":
        if isinstance(link.stream, NoStream) or (wanted, watched_tasks(k, link)) != (
            link.subscribed,
            link.watched,
        ):
            _open_stream(k, link, wanted)
        return
    for uri in wanted:
        if uri not in link.subscribed:
            _tell(k, link, "resources/subscribe", {"uri": Raw(_encode(uri))})
    for uri in link.subscribed:
        if uri not in wanted:
            _tell(k, link, "resources/unsubscribe", {"uri": Raw(_encode(uri))})
    link.subscribed = wanted


def _open_stream(k: Context, link: Link, uris: list[str]) -> None:
    """One stream per 2026 server; a changed set means a new stream, opened before the old one is closed."""
    wanted: dict[str, object] = dict.fromkeys(_FILTER, True)
    if uris:
        wanted["resourceSubscriptions"] = uris
    capabilities = None
    if tasks := watched_tasks(k, link):
        wanted["taskIds"] = tasks
        capabilities = declaring_tasks(k.state.session.capabilities)
    params: Members = {"notifications": Raw(_encode(wanted))}
    child_id = send_request(k, link, "subscriptions/listen", params, ForListen(), capabilities)
    match link.stream:
        case StreamAsked(old) | StreamOpen(old):
            k.state.routes.pop(old, None)
            k.to_child(link, encode_notification("notifications/cancelled", _encode({"requestId": old})))
        case NoStream() | StreamEnded():
            pass
    link.stream = StreamAsked(child_id)
    link.subscribed = uris
    link.watched = tasks


def watched_tasks(k: Context, link: Link) -> list[str]:
    """The tasks of a generation, by its own ids, that a stream of the client wants to hear of."""
    wanted = {handle for listen in k.state.session.listens for handle in listen.tasks}
    places = (task.place for task in k.tasks_at(link) if task.handle in wanted)
    return sorted(place.inner for place in places if isinstance(place, AtServer))


def on_acknowledged(k: Context, link: Link) -> None:
    if isinstance(link.stream, StreamAsked):
        link.stream = StreamOpen(link.stream.child_id)


def on_stream_ended(k: Context, link: Link, response: Response) -> None:
    """A server that never opened its stream has none, and is asked at its next generation. One that closed it is asked
    again, a bounded number of times, and for its lists too: what changed in between was not announced."""
    k.quarantine("listen_ended")
    was_open, link.stream = isinstance(link.stream, StreamOpen), StreamEnded()
    may_reopen = isinstance(link.stage, Live) and link.streams_reopened < k.limits.listens
    if response.result is not None and was_open and may_reopen:
        link.streams_reopened += 1
        _open_stream(k, link, link.subscribed)
        k.emit(ListsDoubted(link))
