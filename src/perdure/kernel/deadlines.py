"""What becomes of invocations that take too long."""

from __future__ import annotations

import msgspec

from perdure.kernel import answering, asks, mounts, opening, recovery
from perdure.kernel.context import Context
from perdure.kernel.state import (
    Asking,
    ForPing,
    Held,
    InFlight,
    Invocation,
    Link,
    Parked,
    Probing,
    Queued,
)
from perdure.protocol.faults import (
    DEADLINE,
    Fault,
)
from perdure.protocol.frames import (
    encode_notification,
)
from perdure.protocol.replay import ProbeRequired

_encode = msgspec.json.encode


def timers(k: Context) -> list[float]:
    times = [c.state.deadline if isinstance(c.state, Probing) else c.deadline for c in k.state.calls.values()]
    return times + asks.timers(k)


def tick(k: Context) -> None:
    asks.tick(k)
    for call in list(k.state.calls.values()):
        if call.seq not in k.state.calls:
            continue
        due = call.state.deadline if isinstance(call.state, Probing) else call.deadline
        if due <= k.now:
            _overdue(k, call)


def _overdue(k: Context, call: Invocation) -> None:
    match call.state:
        case Queued():
            late = Fault("timeout", "deadline", k.state.mounts[call.mount].generation, "waited too long")
            if call.attempts == 0:
                answering.answer_error(k, call, DEADLINE, late, "not_started", "safe")
            else:
                answering.answer_error(k, call, DEADLINE, late, "unknown", recovery.advice(call))
        case Held() | Probing():
            recovery.answer_unknown(k, call, Fault("timeout", "probe_timeout", 0, "the probe did not answer"))
        case Parked():
            answering.withdraw(k, call, "the client did not come back with an answer")
        case Asking():
            call.deadline = k.now + call.timeout
        case InFlight(generation):
            link = k.state.mounts[call.mount].links[generation]
            if asks.is_waited_for(k, call):
                call.deadline = k.now + call.timeout  # a person may be thinking
            elif call.overdue:
                _answer_deadline(k, link, call)
            else:
                call.overdue = True
                call.deadline = k.now + k.limits.ping_s + 1.0
                ping(k, link)


def ping(k: Context, link: Link) -> None:
    """Ask whether the child lives at all: a slow call ends alone, a dead child is replaced."""
    if link.pinged in k.state.routes:
        return
    method = "ping" if link.era == "handshake" else "server/discover"
    link.pinged = opening.ask(k, link, method, {}, ForPing(k.now + k.limits.ping_s))


def on_alive(k: Context, link: Link) -> None:
    for seq in mounts.in_flight(k, link):
        call = k.state.calls[seq]
        if call.overdue:
            _answer_deadline(k, link, call)


def _answer_deadline(k: Context, link: Link, call: Invocation) -> None:
    assert isinstance(call.state, InFlight)
    params = _encode({"requestId": call.state.child_id, "reason": "deadline exceeded"})
    k.to_child(link, encode_notification("notifications/cancelled", params))
    fault = Fault("timeout", "deadline", link.generation, f"no answer within {call.timeout:g} s")
    k.note("fault", mount=call.mount, generation=link.generation, **{"class": "timeout"}, code="deadline")
    if isinstance(call.replay, ProbeRequired):
        k.state.routes.pop(call.state.child_id, None)
        recovery.hold(k, call, fault)
        recovery.resume(k, k.state.mounts[call.mount])
        return
    answering.answer_error(k, call, DEADLINE, fault, "unknown", recovery.advice(call))
