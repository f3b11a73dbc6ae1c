"""The invocations: each is accepted once and dispatched by rule. How it ends is for `answering` and `deadlines`.

| state | leaves it when |
|---|---|
| Queued | its server is ready and nothing that conflicts is undecided |
| InFlight | the server answers, is lost, or the deadline passes |
| Held, Probing | a probe decides |
| Parked, Asking | the client answers what the server asked |
"""

from __future__ import annotations

from bisect import insort
from posixpath import normpath

import msgspec
from msgspec import Raw

from perdure.kernel import answering, metrics, mounts, opening, recovery, streams
from perdure.kernel.context import Context
from perdure.kernel.events import NotRecorded
from perdure.kernel.state import (
    Asking,
    Disabled,
    Draining,
    ForCall,
    Held,
    Idle,
    InFlight,
    Invocation,
    Link,
    Mount,
    Open,
    Parked,
    Probing,
    Queued,
    Route,
    Stopped,
)
from perdure.protocol import eras
from perdure.protocol.faults import (
    PERMANENT,
    QUEUE_FULL,
    TOO_MANY_PENDING,
    UNAVAILABLE,
    Fault,
)
from perdure.protocol.frames import (
    Members,
    encode_members,
    encode_raw_error,
    encode_request,
    members,
)
from perdure.protocol.replay import CONVERGENT, NEVER, READ_METHODS, pointed
from perdure.protocol.tool_groups import GROUP_NAMES

_encode = msgspec.json.encode

# --- accepting -------------------------------------------------------------------------------------


def accept(k: Context, call: Invocation) -> None:
    """Take a request in, or refuse it in words. A refused newcomer changes nothing (law 8)."""
    mount = k.state.mounts[call.mount]
    metrics.accepted(k, call.method)
    if len(k.state.calls) >= k.limits.pending:
        fault = Fault("resource", "too_many_pending", 0, f"{k.limits.pending} requests are pending")
        refuse(k, call, TOO_MANY_PENDING, fault)
        return
    if isinstance(mount.phase, Open | Stopped | Disabled):
        refuse_unavailable(k, mount, call)
        return
    k.state.calls[call.seq] = call
    k.state.ids[call.public_id] = call.seq
    mount.used_at = k.now
    insort(mount.queue, call.seq)
    if isinstance(mount.phase, Idle):
        mounts.start(k, mount)
    pump(k, mount)
    if not isinstance(call.state, Queued) or call.seq not in k.state.calls:
        return
    classify(k, call)
    if len(mount.queue) > k.limits.queue:
        mount.queue.remove(call.seq)
        fault = Fault("resource", "queue_full", mount.generation, f"{k.limits.queue} requests wait already")
        answering.answer_error(k, call, QUEUE_FULL, fault, "not_started", "later", "host_error")


def refuse(k: Context, call: Invocation, number: int, fault: Fault, cause: Fault | None = None) -> None:
    """Answer a request that was never taken in."""
    metrics.call_ended(k, call, "host_error", fault.code)
    error = answering.error_of(call, number, fault, "not_started", "later", cause)
    k.to_client(encode_raw_error(call.public_id, error))


def refuse_unavailable(k: Context, mount: Mount, call: Invocation) -> None:
    if sentence := k.specs[mount.name].untrusted:
        waiting = Fault("process", "untrusted", mount.generation, sentence)
        refuse(k, call, UNAVAILABLE, waiting)
        return
    known = mount.last_fault
    detail = f"{known.fault_class}/{known.code}" if known is not None else ""
    hint = ""
    match mount.phase:
        case Disabled():
            code, detail, hint = "disabled", "", "enable it with the mounts tool"
        case Stopped():
            code, hint = "stopped", "restart it with the mounts tool"
            if known is not None and known.code in PERMANENT:
                detail, hint = known.detail, known.hint
        case _:
            code = "circuit_open"
    fault = Fault(known.fault_class if known else "process", code, mount.generation, detail, hint)
    refuse(k, call, UNAVAILABLE, fault, known)


def take_back(k: Context, event: NotRecorded) -> None:
    """A dispatch that did not happen. The call is refused: without its record it could be made twice."""
    call = k.state.calls.get(event.seq)
    if call is None or not isinstance(call.state, InFlight) or call.attempts != 1:
        return
    call.attempts = 0
    fault = Fault(
        "resource", "call_not_recorded", call.state.generation, event.reason, "free some disk space"
    )
    answering.answer_error(k, call, UNAVAILABLE, fault, "not_started", "later", "host_error")


def classify(k: Context, call: Invocation) -> None:
    """Give the call its replay class and where its conflict keys are, by the catalog that is active now (law 3)."""
    spec = k.specs[call.mount]
    call.timeout = spec.call_s
    if call.method != "tools/call":
        call.replay = CONVERGENT if call.method in READ_METHODS else NEVER
    else:
        entry = k.public.tool(spec.prefix + call.name)
        if entry is None or entry.mount != call.mount:
            call.replay, call.conflict, call.keys = NEVER, (), ()
        else:
            call.replay = entry.replay
            call.conflict, call.keys = entry.conflict, None if entry.conflict else ()
            call.timeout = entry.deadline_s or spec.call_s
            call.is_wait = entry.waits
    if call.attempts == 0:
        call.deadline = call.accepted_at + call.timeout


def conflict_keys(k: Context, call: Invocation) -> tuple[str, ...]:
    """What the call may be changing. Read when somebody has to know: as a rule nobody waits for anybody."""
    if call.keys is None:
        call.keys = _keys_at(k, call, call.conflict)
    return call.keys


def _keys_at(k: Context, call: Invocation, pointers: tuple[str, ...]) -> tuple[str, ...]:
    try:
        given = members(_params(call).get("arguments", Raw(b"{}")))
        # Only what a key can be made of is read: beside it may stand a file's whole content.
        wanted = {name for path in pointers for name in path.split("/")[1:2]}
        arguments = {name: msgspec.json.decode(given[name]) for name in wanted & given.keys()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    keys = set()
    for path in pointers:
        for value in pointed(arguments, path):
            text = value if isinstance(value, str) else _encode(value).decode()
            keys.add(normpath(text.removeprefix("file://")))
    return tuple(sorted(keys))


def _params(call: Invocation) -> Members:
    return members(call.params) if call.params is not None else {}


# --- dispatching -----------------------------------------------------------------------------------------


def pump(k: Context, mount: Mount) -> None:
    """Dispatch, oldest first, whatever may go. Only work that conflicts waits (law 7)."""
    link = mount.serving_link()
    if link is None or not mount.queue:
        return
    barred = _barred_keys(k, mount)
    free = k.limits.in_flight - sum(recovery.is_on(call, link) for call in k.state.calls.values())
    for seq in list(mount.queue):
        if free <= 0 or link.backlog > k.limits.outbox_bytes:
            return
        call = k.state.calls[seq]
        if call.attempts == 0:
            classify(k, call)
        if barred and not barred.isdisjoint(conflict_keys(k, call)):
            barred.update(conflict_keys(k, call))
            continue
        mount.queue.remove(seq)
        free -= 1
        dispatch(k, link, call)


def _barred_keys(k: Context, mount: Mount) -> set[str]:
    """What an undecided call, or one still running on a fenced generation, may be changing."""
    barred: set[str] = set()
    for call in k.state.calls.values():
        if call.mount != mount.name or call.keys == ():
            continue
        match call.state:
            case Held() | Probing():
                barred.update(conflict_keys(k, call))
            case InFlight(generation) | Parked(generation) | Asking(generation) if isinstance(
                mount.links[generation].stage, Draining
            ):
                barred.update(conflict_keys(k, call))
            case _:
                pass
    return barred


def dispatch(k: Context, link: Link, call: Invocation) -> None:
    """Mark, then send: from here on the call may have happened (law 1)."""
    if link.era == "modern" and call.method in streams.SUBSCRIBING:
        streams.record(k, link, call)  # a 2026 server has no such request: its stream carries the set
        answering.answer_result(k, call, "handshake", b"{}")
        return
    child_id = k.mint()
    if call.attempts > 0:
        call.replays += 1
        metrics.replayed(k, call.method)
        k.note("replay", mount=link.mount, generation=link.generation, call=call.seq, method=call.method[:64])
    call.attempts += 1
    send(k, link, call, child_id)
    k.note("dispatch", mount=link.mount, generation=link.generation, call=call.seq, method=call.method[:64])


def send(k: Context, link: Link, call: Invocation, child_id: int) -> None:
    call.state = InFlight(link.generation, child_id)
    call.deadline = k.now + call.timeout
    call.overdue = False
    k.state.routes[child_id] = Route(link.mount, link.generation, ForCall(call.seq))
    extra = {key: Raw(value) for key, value in call.extra.items()}
    k.to_child(link, encode_request(child_id, call.method, child_params(k, link, call, child_id), extra))


def child_params(k: Context, link: Link, call: Invocation, child_id: int) -> bytes | Members | None:
    """The client's params as this child must see them; untouched where nothing has to differ."""
    spec = k.specs[link.mount]
    crossing = call.era != link.era
    named = bool(spec.prefix) and call.method in ("tools/call", "prompts/get", "completion/complete")
    if not (crossing or named or call.token is not None or spec.builtin or call.inputs is not None):
        return call.params
    found = _params(call)
    meta: Members = members(found["_meta"]) if "_meta" in found else {}
    if call.method in ("tools/call", "prompts/get"):
        found["name"] = Raw(_encode(call.name))
    elif call.method == "completion/complete" and spec.prefix:
        found["ref"] = _inner_reference(found.get("ref", Raw(b"{}")), call.name)
    if link.era == "handshake":
        for key in eras.ENVELOPE_KEYS:
            meta.pop(key, None)
    elif call.era == "handshake":
        meta.update(opening.envelope(k))
    if call.token is not None:
        meta["progressToken"] = Raw(_encode(child_id))
    if spec.builtin:
        meta[eras.META_INVOCATION] = Raw(_encode(invocation_key(k, call)))
        meta[eras.META_CALLER] = Raw(_encode(_caller(k)))
        if k.now > call.accepted_at:  # it waited here, or another worker had it before
            meta[eras.META_AGE] = Raw(_encode(round((k.now - call.accepted_at) * 1000)))
    if call.inputs is not None:
        found.update(members(call.inputs))
    if meta:
        found["_meta"] = encode_members(meta)
    else:
        found.pop("_meta", None)
    return found


def _caller(k: Context) -> dict[str, object]:
    session = k.state.session
    known: dict[str, object] = {"name": session.client_name, "session": session.session_id}
    enabled = k.groups
    if len(enabled) < len(GROUP_NAMES):
        known["disabled_groups"] = [name for name in GROUP_NAMES if name not in enabled]
    return known


def _inner_reference(raw: Raw, name: str) -> Raw:
    reference = members(raw)
    if "name" in reference:
        reference["name"] = Raw(_encode(name))
    return encode_members(reference)


def invocation_key(k: Context, call: Invocation) -> str:
    """The name under which the worker commits the effect, and by which a probe finds it."""
    return f"{k.state.session.session_id}.{call.seq}"
