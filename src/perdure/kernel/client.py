"""The machine of the client: its session from the first request to the end. Every transition is here.

| Session.phase | event | next phase |
|---|---|---|
| New | a request of 2026 other than `ping` | Modern |
| New | a request of the handshake era other than `initialize` and `ping` | Uninitialized |
| Uninitialized | a request of 2026 | Modern |
| New, Uninitialized, Modern | `initialize` | Initializing |
| Initializing | `initialized`, or a request of the handshake era, after the answer to `initialize` | Ready |
| any | the client closed, or shutdown | the same, with an end in `closing` |

Servers start when the phase leaves New. Both eras come down one pipe: a client may probe with `server/discover` and go on
with `initialize`. Lists, and requests whose server is not known yet, wait a bounded time until every server has said what it
offers.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel import metrics
from perdure.kernel.catalog import LISTS
from perdure.kernel.client_requests import Incoming, Refusal, send
from perdure.kernel.context import Context
from perdure.kernel.internal_events import (
    ClientArrived,
    ClientLeaves,
    ClientReady,
    ListRequested,
    ListsChanged,
    RequestResumed,
)
from perdure.kernel.state import Initializing, Modern, New, Ready, Starting, Uninitialized, Waiter, Waiting
from perdure.protocol import eras
from perdure.protocol.frames import INVALID_PARAMS, INVALID_REQUEST, members

_encode = msgspec.json.encode
_string = msgspec.json.Decoder(str)

_OPENING: Final = frozenset({"initialize", "server/discover"})


class _Initialize(msgspec.Struct):
    protocolVersion: str
    capabilities: Raw = Raw(b"{}")
    clientInfo: Raw = Raw(b'{"name":"unknown","version":"0"}')


# --- era and handshake -----------------------------------------------------------------------------------


def notice_client(k: Context, request: Incoming) -> None:
    """Note era, client and capabilities of a request. The first one starts the servers, which depend on them."""
    session = k.state.session
    if request.method in ("initialize", "ping"):
        return
    if request.era == "modern" and not session.initialized:
        session.capabilities = bytes(request.meta[eras.META_CAPABILITIES])
        info = request.meta.get(eras.META_CLIENT)
        if info is not None and bytes(info)[:1] == b"{":
            session.client_info = bytes(info)
            session.client_name = _client_name(info)
    match session.phase, request.era:
        case Initializing(), "handshake":
            on_ready(k)  # it works already: some clients forget to say that they are ready
        case New(), "handshake":
            session.phase = Uninitialized()
            k.emit(ClientArrived())
        case New(), "modern":
            session.phase = Modern()
            k.emit(ClientArrived())
        case Uninitialized(), "modern":
            session.phase = Modern()
        case _:
            pass


def on_ready(k: Context) -> None:
    """The client is ready to be asked, once it has its answer to `initialize`."""
    phase = k.state.session.phase
    if not isinstance(phase, Initializing):
        return
    if any(waiter.method == "initialize" for waiter in k.state.waiters):
        k.state.session.phase = Initializing(phase.version, is_early=True)
    else:
        k.state.session.phase = Ready(phase.version)
        k.emit(ClientReady())


def _client_name(info: Raw | bytes) -> str:
    try:
        return _string.decode(members(info)["name"])[:128]
    except (ValueError, KeyError, msgspec.MsgspecError):
        return "unknown"


def initialize(k: Context, request: Incoming) -> None:
    session = k.state.session
    if session.initialized:
        raise Refusal(INVALID_REQUEST, "the session is initialized already: send initialize once.")
    try:
        wanted = msgspec.json.decode(request.raw or b"{}", type=_Initialize)
        members(wanted.capabilities)
        members(wanted.clientInfo)
    except (msgspec.MsgspecError, ValueError):
        message = "initialize needs protocolVersion, a string; capabilities and clientInfo must be objects."
        raise Refusal(INVALID_PARAMS, message) from None
    session.phase = Initializing(eras.negotiate(wanted.protocolVersion))
    session.capabilities = bytes(wanted.capabilities)
    session.client_info = bytes(wanted.clientInfo)
    session.client_name = _client_name(wanted.clientInfo)
    k.note("session", phase="initialize", era="handshake", client=session.client_name)
    k.emit(ClientArrived())
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, _startup_grace(k))


def discover(k: Context, request: Incoming) -> None:
    k.note("session", phase="discover", era="modern", client=k.state.session.client_name)
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, _startup_grace(k))


def _startup_grace(k: Context) -> float:
    """A wrapped server must introduce itself first. The host waits a moment for what its servers declare."""
    if k.wrapped:
        return max(spec.startup_s for spec in k.specs.values())
    return k.limits.introduction_grace_s


def _opening_result(k: Context, method: str) -> bytes:
    era: eras.Era = "handshake" if method == "initialize" else "modern"
    result: dict[str, object] = {"capabilities": Raw(k.public.capabilities(era))}
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


def close(k: Context, *, is_shutdown: bool) -> None:
    """No new work from here on; what runs has `drain_s` to end. After a shutdown nothing waits for catalogs any more."""
    if k.state.session.closing is not None:
        return
    k.state.session.closing = k.now + k.limits.drain_s
    k.note("session", phase="closing")
    if is_shutdown:
        answer_waiting(k)
    k.emit(ClientLeaves())


# --- lists, and what waits for the first catalogs --------------------------------------------------------


def list_all(k: Context, request: Incoming) -> None:
    if "cursor" in request.params and bytes(request.params["cursor"]) != b"null":
        raise Refusal(INVALID_PARAMS, "no cursor was given out: every list is one page. Leave cursor out.")
    k.emit(ListRequested())
    metrics.accepted(k, request.method)
    _wait_or_answer(k, request, _list_grace(k))


def _list_grace(k: Context) -> float:
    """A server that is required is waited for as long as it may take to start."""
    needed = [
        k.specs[mount.name].startup_s
        for mount in k.state.mounts.values()
        if k.specs[mount.name].required and not mount.settled
    ]
    return max([k.limits.list_grace_s, *needed])


def _wait_or_answer(k: Context, request: Incoming, grace: float) -> None:
    waiter = _waiter(k, request, grace)
    closing = k.state.session.closing is not None
    full = len(k.state.waiters) >= k.limits.pending
    if grace > 0 and not (_is_ready(k, request.method) or closing or full):
        k.state.waiters.append(waiter)
    else:
        _answer_waiter(k, waiter)


def _waiter(k: Context, request: Incoming, grace: float) -> Waiter:
    return Waiter(request.id, request.method, request.raw, request.era, k.now + grace, k.now, request.extra)


def _is_ready(k: Context, method: str) -> bool:
    """Whether all is known that the answer depends on.

    Lists depend on every server. What the session can do depends on the eager ones; the worker's share is known.
    """
    mounts = k.state.mounts.values()
    if method not in _OPENING or k.wrapped:
        return all(mount.settled for mount in mounts)
    specs = (k.specs[mount.name] for mount in mounts if not mount.settled and mount.catalog is None)
    return all(spec.builtin or spec.start == "lazy" for spec in specs)


def _answer_waiter(k: Context, waiter: Waiter) -> None:
    if waiter.method in LISTS:
        result = k.public.listing(waiter.method, waiter.era)
    elif waiter.method in _OPENING:
        result = _opening_result(k, waiter.method)
    else:
        k.emit(RequestResumed(waiter))
        return
    send(k, waiter.public_id, waiter.method, waiter.era, result, waiter.accepted_at)
    phase = k.state.session.phase
    if waiter.method == "initialize" and isinstance(phase, Initializing) and phase.is_early:
        on_ready(k)


def flush_waiters(k: Context) -> None:
    ready = [waiter for waiter in k.state.waiters if _is_ready(k, waiter.method)]
    k.state.waiters = [waiter for waiter in k.state.waiters if waiter not in ready]
    for waiter in ready:
        _answer_waiter(k, waiter)


def answer_waiting(k: Context) -> None:
    waiting, k.state.waiters = k.state.waiters, []
    for waiter in waiting:
        _answer_waiter(k, waiter)


def may_find_owner(k: Context, request: Incoming) -> bool:
    """A server that is still starting may have what the request names: let the request wait."""
    coming = any(
        m.catalog is None and isinstance(m.phase, Starting | Waiting) for m in k.state.mounts.values()
    )
    full = len(k.state.waiters) >= k.limits.pending
    if request.waited or not coming or full or k.state.session.closing is not None:
        return False
    k.state.waiters.append(_waiter(k, request, k.limits.list_grace_s))
    return True


def tick(k: Context) -> None:
    due = [w for w in k.state.waiters if w.until <= k.now]
    if not due:
        return
    k.state.waiters = [w for w in k.state.waiters if w.until > k.now]
    for waiter in due:
        _answer_waiter(k, waiter)
    if any(waiter.method not in _OPENING for waiter in due):
        for mount in k.state.mounts.values():
            mount.settled = True  # from now on a catalog that comes is news
        flush_waiters(k)


def set_tool_group(k: Context, group: str, *, is_enabled: bool) -> None:
    """Only this session's list changes: what it enabled is part of its state, and outlives worker and host."""
    k.state.session.groups[group] = is_enabled
    k.emit(ListsChanged(["tools"]))
