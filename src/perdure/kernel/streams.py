"""What the session keeps across generations, and what servers announce: subscriptions, levels, changes.

A handshake client hears of a change by notification; a 2026 client only on a stream it opened.
What a child cannot be trusted to keep is handed to its successor (law 13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from perdure.kernel import asks, metrics, opening
from perdure.kernel.catalog import CHANGED
from perdure.kernel.context import Context
from perdure.kernel.state import (
    Draining,
    ForCall,
    ForListen,
    ForSession,
    InFlight,
    Invocation,
    Link,
    Listen,
    Live,
    Mount,
)
from perdure.protocol import eras
from perdure.protocol.faults import Fault
from perdure.protocol.frames import (
    INVALID_PARAMS,
    Members,
    Notification,
    RequestId,
    Response,
    decode_id,
    encode_error,
    encode_members,
    encode_notification,
    encode_result,
    members,
)

if TYPE_CHECKING:
    from perdure.kernel.incoming import Incoming

NOTICE_MAX: Final = 300
NOTICES_MAX: Final = 5
_encode = msgspec.json.encode
SUBSCRIBING = frozenset({"resources/subscribe", "resources/unsubscribe"})
_KIND_OF = {method: kind for kind, method in CHANGED.items()}
_FILTER = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}


class _Filter(msgspec.Struct):
    toolsListChanged: bool | None = None
    promptsListChanged: bool | None = None
    resourcesListChanged: bool | None = None
    resourceSubscriptions: list[str] | None = None


# --- announcing to the client ----------------------------------------------------------------------------


def anyone_listens(k: Context) -> bool:
    return k.state.session.live or bool(k.state.session.listens)


def announce(k: Context, method: str, kind: str, params: Members | None = None, uri: str = "") -> None:
    """Tell everyone who asked to know: the session of a handshake client, the streams of a 2026 one."""
    session = k.state.session
    if session.live:
        k.to_client(encode_notification(method, encode_members(params) if params else None))
    for listen in session.listens:
        if kind in listen.kinds or (uri and uri in listen.uris):
            meta = encode_members({eras.META_SUBSCRIPTION: Raw(_encode(listen.public_id))})
            k.to_client(encode_notification(method, encode_members({**(params or {}), "_meta": meta})))


# --- what children announce ----------------------------------------------------------------------------------


def on_child_notification(k: Context, link: Link, note: Notification) -> None:
    public = isinstance(link.stage, Live | Draining)
    try:
        params = members(note.params) if note.params is not None else {}
    except ValueError:
        k.quarantine("child_malformed")
        return
    if note.method == eras.FILE_FAULTS_METHOD:
        _file_faults(k, link, params)
    elif note.method in _KIND_OF:
        _relist(k, link)
    elif note.method == "notifications/cancelled":
        identity = _identity(params.get("requestId"))
        if identity is not None:
            asks.on_child_cancel(k, link, identity)
    elif note.method == "notifications/progress":
        _progress(k, link, params)
    elif note.method == "notifications/subscriptions/acknowledged":
        _acknowledged(k, link)
    elif not public:
        pass  # a candidate is not heard of before it serves
    elif note.method == "notifications/resources/updated":
        _updated(k, params)
    elif note.method == "notifications/message":
        _message(k, link, note, params)
    elif note.method == eras.NOTICE and k.specs[link.mount].builtin:
        _notice(k, link, params)
    else:
        k.to_client(encode_notification(note.method, note.params, note.extra))


def _notice(k: Context, link: Link, params: Members) -> None:
    """For `health`; a few of the newest."""
    text = msgspec.json.decode(params.get("text", Raw(b'""')))
    mount = k.state.mounts[link.mount]
    mount.notices = [*mount.notices, str(text)[:NOTICE_MAX]][-NOTICES_MAX:]


def _file_faults(k: Context, link: Link, params: Members) -> None:
    """What the worker found wrong in the files that only it reads. Nobody else is asked."""
    try:
        faults = msgspec.json.decode(params.get("faults", Raw(b"[]")), type=list[Fault])
    except msgspec.MsgspecError:
        k.quarantine("child_malformed")
        return
    if k.specs[link.mount].builtin:
        known = k.state.file_faults.get("settings", [])
        metrics.found_in_files(k, "worker", [fault for fault in faults if fault not in known])


def _relist(k: Context, link: Link) -> None:
    """The server's lists changed: learn them first, then tell the client, so that it never sees the old ones."""
    if isinstance(link.stage, Live) and not link.listing:
        opening.list_all(k, link)
    else:
        link.relist = True


def _identity(raw: Raw | None) -> RequestId | None:
    return decode_id(raw) if raw is not None else None


def _progress(k: Context, link: Link, params: Members) -> None:
    """Progress under the client's own token, never going back, whatever attempt it comes from (law 6)."""
    token = _identity(params.get("progressToken"))
    route = k.state.routes.get(token) if type(token) is int else None
    if route is None or (route.mount, route.generation) != (link.mount, link.generation):
        k.quarantine("unexpected_progress")
        return
    if not isinstance(route.purpose, ForCall):
        return
    call = k.state.calls[route.purpose.seq]
    try:
        value = float(msgspec.json.decode(params.get("progress", Raw(b"null")), type=float))
    except msgspec.MsgspecError:
        k.quarantine("unexpected_progress")
        return
    if call.token is None or not isinstance(call.state, InFlight):
        return
    call.deadline = k.now + call.timeout
    call.overdue = False
    if call.progress is not None and value <= call.progress:
        return
    call.progress = value
    known = {**params, "progressToken": Raw(_encode(call.token))}
    k.to_client(encode_notification("notifications/progress", encode_members(known)))


def _updated(k: Context, params: Members) -> None:
    uri = _identity(params.get("uri"))
    if not isinstance(uri, str):
        return
    announce(k, "notifications/resources/updated", "", _without_subscription(params), uri)


def _without_subscription(params: Members) -> Members:
    if "_meta" not in params:
        return params
    try:
        meta = members(params["_meta"])
    except ValueError:
        return {key: value for key, value in params.items() if key != "_meta"}
    meta.pop(eras.META_SUBSCRIPTION, None)
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": encode_members(meta)} if meta else rest


def _message(k: Context, link: Link, note: Notification, params: Members) -> None:
    """Log messages: a 2026 client gets them only while a request of its own asks for that level."""
    if k.state.session.initialized:
        k.to_client(encode_notification(note.method, note.params, note.extra))
        return
    level = _identity(params.get("level"))
    for call in k.state.calls.values():
        wanted = call.log_level in eras.LOG_LEVELS and level in eras.LOG_LEVELS
        if wanted and call.mount == link.mount and isinstance(call.state, InFlight):
            assert isinstance(level, str)
            if eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(call.log_level):
                k.to_client(encode_notification(note.method, note.params, note.extra))
                return


# --- what the client wants to hear -------------------------------------------------------------------------------


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
    uris = tuple(wanted.resourceSubscriptions or ())
    if len(session.listens) >= k.limits.listens or len(uris) > k.limits.subscriptions:
        metrics.ended(k, request.method, k.now, "host_error")
        most, each = k.limits.listens, k.limits.subscriptions
        message = f"at most {most} streams with {each} resources each are allowed: end one first."
        k.to_client(encode_error(request.id, INVALID_PARAMS, message))
        return
    kinds = tuple(kind for field, kind in _FILTER.items() if getattr(wanted, field))
    session.listens.append(Listen(request.id, kinds, uris))
    honored: dict[str, object] = {field: True for field, kind in _FILTER.items() if kind in kinds}
    if uris:
        honored["resourceSubscriptions"] = list(uris)
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


def record(k: Context, link: Link, call: Invocation) -> None:
    """Keep what the call changed in the session, once it succeeded and before the client hears of it."""
    session = k.state.session
    if call.method == "resources/subscribe":
        session.subscriptions[call.name] = call.mount
        link.subscribed = sorted({*link.subscribed, call.name})
    elif call.method == "resources/unsubscribe":
        session.subscriptions.pop(call.name, None)
        link.subscribed = [uri for uri in link.subscribed if uri != call.name]
    elif call.method == "logging/setLevel":
        session.log_level = call.name
    else:
        return
    if link.era == "modern" and call.method in SUBSCRIBING:
        _listen(k, link, wanted_uris(k, k.state.mounts[link.mount]))


# --- telling the children -------------------------------------------------------------------------------------------


def wanted_uris(k: Context, mount: Mount) -> list[str]:
    session = k.state.session
    wanted = {uri for uri, owner in session.subscriptions.items() if owner == mount.name}
    wanted.update(
        uri for listen in session.listens for uri in listen.uris if k.public.resource_owner(uri) == mount.name
    )
    return sorted(wanted)


def restore(k: Context, link: Link) -> None:
    """A new generation takes up what its predecessor had been told."""
    if k.state.session.log_level:
        set_level(k, link, k.state.session.log_level)
    sync(k, link)


def set_level(k: Context, link: Link, level: str) -> None:
    if link.era == "handshake" and "logging" in members(link.draft.capabilities):
        _tell(k, link, "logging/setLevel", {"level": Raw(_encode(level))})


def _tell(k: Context, link: Link, method: str, params: Members) -> None:
    """Hand session state over. The answer changes nothing, so a server that gives none costs a bounded memory."""
    told = [
        identity
        for identity, route in k.state.routes.items()
        if isinstance(route.purpose, ForSession)
        and (route.mount, route.generation) == (link.mount, link.generation)
    ]
    if len(told) >= k.limits.subscriptions:
        del k.state.routes[told[0]]
    opening.ask(k, link, method, params, ForSession())


def sync_all(k: Context) -> None:
    for mount in k.state.mounts.values():
        link = mount.serving_link()
        if link is not None:
            sync(k, link)


def sync(k: Context, link: Link) -> None:
    wanted = wanted_uris(k, k.state.mounts[link.mount])
    if link.era == "modern":
        if link.listen == 0 or wanted != link.subscribed:
            _listen(k, link, wanted)
        return
    for uri in wanted:
        if uri not in link.subscribed:
            _tell(k, link, "resources/subscribe", {"uri": Raw(_encode(uri))})
    for uri in link.subscribed:
        if uri not in wanted:
            _tell(k, link, "resources/unsubscribe", {"uri": Raw(_encode(uri))})
    link.subscribed = wanted


def _listen(k: Context, link: Link, uris: list[str]) -> None:
    """One stream per 2026 server; a changed set means a new stream, opened before the old one is closed."""
    old = link.listen
    wanted: dict[str, object] = dict.fromkeys(_FILTER, True)
    if uris:
        wanted["resourceSubscriptions"] = uris
    link.listen = opening.ask(
        k, link, "subscriptions/listen", {"notifications": Raw(_encode(wanted))}, ForListen()
    )
    link.subscribed = uris
    if old:
        k.state.routes.pop(old, None)
        k.to_child(link, encode_notification("notifications/cancelled", _encode({"requestId": old})))


def _acknowledged(k: Context, link: Link) -> None:
    route = k.state.routes.get(link.listen)
    if route is not None and isinstance(route.purpose, ForListen):
        k.state.routes[link.listen] = msgspec.structs.replace(route, purpose=ForListen(is_open=True))


def on_listen_ended(k: Context, link: Link, response: Response, *, is_open: bool) -> None:
    """A server that never opened its stream has none, and is asked at its next generation. One that closed it is asked
    again, a bounded number of times, and for its lists too: what changed in between was not announced."""
    k.quarantine("listen_ended")
    is_asked_again = is_open and isinstance(link.stage, Live) and link.relistened < k.limits.listens
    if response.result is not None and is_asked_again:
        link.relistened += 1
        link.listen = 0
        _listen(k, link, link.subscribed)
        _relist(k, link)
