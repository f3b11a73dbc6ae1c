"""What becomes of work whose child is lost. Restarting the child and redoing the work are two decisions.

| replay class | after a loss |
|---|---|
| Convergent | queued again, in its old place, while the replay budget lasts |
| ProbeRequired | held until a probe says done, absent or unknown |
| NeverReplay | answered at once: the outcome is unknown |
"""

from __future__ import annotations

from bisect import insort

import msgspec
from msgspec import Raw

from perdure.kernel import answering, asks, ledger, metrics, mounts, opening, rollout
from perdure.kernel.context import Context
from perdure.kernel.events import ChildLost
from perdure.kernel.state import (
    Announced,
    Asking,
    Disabled,
    Draining,
    ForProbe,
    Held,
    InFlight,
    Invocation,
    Link,
    Live,
    Mount,
    Parked,
    Preparing,
    Probing,
    Queued,
    Serving,
    Starting,
)
from perdure.protocol import eras
from perdure.protocol.faults import (
    DEADLINE,
    OUTCOME_UNKNOWN,
    PERMANENT,
    QUEUE_FULL,
    REPLAYS_EXHAUSTED,
    UNAVAILABLE,
    Fault,
    Retry,
)
from perdure.protocol.frames import Members, Response, encode_members, members
from perdure.protocol.replay import (
    SAFE_TO_RETRY,
    STILL_UNKNOWN,
    Completed,
    Convergent,
    NeverReplay,
    ProbeAnswer,
    ProbeRequired,
    SafeToRetry,
    StillUnknown,
    pointer,
)

_encode = msgspec.json.encode

ON_REQUEST = frozenset({"restarted", "disabled", "unmounted"})
"""Codes of a generation that was ended because its owner wanted it."""


class _Probed(msgspec.Struct):
    status: str = ""
    result: Raw = Raw(b"null")  # `Raw | None` would take nothing but null


class _ProbeResult(msgspec.Struct):
    structuredContent: _Probed | None = None


# --- a child is lost ------------------------------------------------------------------------------------


def on_lost(k: Context, event: ChildLost) -> None:
    link = k.link(event.mount, event.generation)
    if link is not None:
        mount = k.state.mounts[event.mount]
        mount.exit_code, mount.stderr = event.exit_code, event.stderr
        lose(k, link, event.fault, stop=False)


def lose(k: Context, link: Link, fault: Fault, *, stop: bool) -> None:
    """A generation is gone. Settle its work first, then decide what comes in its place."""
    mount = k.state.mounts[link.mount]
    affected = [c for c in k.state.calls.values() if is_on(c, link)]
    if stop:
        mounts.stop(k, mount, link, force=True)
    else:
        mount.links.pop(link.generation, None)
    release(k, link)
    if fault.code in ON_REQUEST:  # the calls are settled as after a fault, but nothing failed
        k.note(
            "lifecycle",
            mount=mount.name,
            generation=link.generation,
            phase=fault.code,
            calls=len(affected),
        )
    else:
        if stop:
            mount.exit_code, mount.stderr = None, ""
        mount.last_fault = fault
        metrics.faulted(k, fault, [c.method for c in affected])
        k.note(
            "fault",
            mount=mount.name,
            generation=link.generation,
            code=fault.code,
            calls=len(affected),
            **{"class": fault.fault_class},
            **_cause(k, mount, link, fault),
        )
    for call in sorted(affected, key=lambda c: c.seq):
        dispose(k, mount, call, fault)
    _replace(k, mount, link, fault)


def _cause(k: Context, mount: Mount, link: Link, fault: Fault) -> dict[str, str | int | bool]:
    """What an event log may hold of a fault: its detail, unless it quotes the server, and which start it was."""
    found: dict[str, str | int | bool] = {}
    if fault.detail and fault.fault_class in ("process", "resource"):
        found["detail"] = fault.detail
    if not isinstance(link.stage, Live | Draining):
        found["starting"] = True
        if fault.code not in PERMANENT:
            found["attempt"], found["attempts"] = mount.unproductive + 1, k.limits.unproductive_starts
    return found


def is_on(call: Invocation, link: Link) -> bool:
    """Whether this generation still owes something for the call."""
    if call.mount != link.mount:
        return False
    match call.state:
        case InFlight(generation) | Probing(generation) | Parked(generation) | Asking(generation):
            return generation == link.generation
        case _:
            return False


def release(k: Context, link: Link) -> None:
    """Forget what was asked of, and by, a generation that is no more."""
    gone = [i for i, r in k.state.routes.items() if (r.mount, r.generation) == (link.mount, link.generation)]
    for identity in gone:
        del k.state.routes[identity]
    asks.cancel_of(k, link)


def _replace(k: Context, mount: Mount, link: Link, fault: Fault) -> None:
    match mount.rollout:
        case Preparing(generation) | Announced(generation) if generation == link.generation:
            rollout.refused(k, mount, fault)
            return
        case _:
            pass
    match mount.phase:
        case Serving(generation) | Starting(generation) if generation == link.generation:
            if isinstance(mount.phase, Starting) and mount.catalog is None:
                mounts.settle(k, mount)
            if not rollout.promote(k, mount):
                mounts.plan_restart(k, mount, link)
        case _:
            resume(k, mount)  # a fenced generation: its successor can be asked at once


def dispose(k: Context, mount: Mount, call: Invocation, fault: Fault) -> None:
    """What the replay class allows for one call whose attempt was lost (law 3)."""
    call.fault = fault
    if isinstance(call.state, Parked):
        # Its question was the answer to the last request; the retry will find the ticket gone.
        answering.finish(k, call, None)
        return
    if isinstance(call.state, Probing):
        hold(k, call, fault)
        return
    match call.replay:
        case Convergent():
            requeue(k, mount, call, fault)
        case ProbeRequired():
            call.overdue = False  # its process is gone: what a probe finds absent now stays absent
            hold(k, call, fault)
        case NeverReplay():
            answer_unknown(k, call, fault)


def requeue(k: Context, mount: Mount, call: Invocation, fault: Fault) -> None:
    """Back to its old place in the queue. Waiting costs nothing; only a redispatch is a replay (law 2)."""
    budget = k.limits.probes if isinstance(call.replay, ProbeRequired) else k.limits.replays
    if call.replays >= budget:
        spent = Fault("replay", "replays_exhausted", fault.generation, f"{fault.fault_class}/{fault.code}")
        answering.answer_error(k, call, REPLAYS_EXHAUSTED, spent, "unknown", advice(call), cause=fault)
        return
    if len(mount.queue) >= k.limits.queue:
        full = Fault("resource", "queue_full", fault.generation, f"{fault.fault_class}/{fault.code}")
        answering.answer_error(k, call, QUEUE_FULL, full, "unknown", advice(call), cause=fault)
        return
    call.state = Queued()
    call.overdue = False
    call.deadline = k.now + call.timeout
    insort(mount.queue, call.seq)


def hold(k: Context, call: Invocation, fault: Fault) -> None:
    if call.probes >= k.limits.probes:
        answer_unknown(k, call, fault)
        return
    call.fault = fault
    call.state = Held()
    call.deadline = k.now + call.timeout


def advice(call: Invocation) -> Retry:
    match call.replay:
        case Convergent():
            return "safe"
        case ProbeRequired():
            return "after_probe"
        case NeverReplay():
            return "never"


def answer_unknown(k: Context, call: Invocation, fault: Fault) -> None:
    """The honest answer where nothing may be redone: it was sent, and nobody knows."""
    number = DEADLINE if call.overdue else OUTCOME_UNKNOWN
    answering.answer_error(k, call, number, fault, "unknown", advice(call))


def unreadable(k: Context, call: Invocation, fault: Fault) -> None:
    """The server answered, so it ran; what it said cannot be passed on."""
    k.note(
        "fault",
        mount=call.mount,
        generation=fault.generation,
        code=fault.code,
        **{"class": fault.fault_class},
    )
    if isinstance(call.state, Parked):
        error = answering.error_of(call, OUTCOME_UNKNOWN, fault, "unknown", advice(call))
        asks.keep_answer(k, call, Response(None, error=error))
    else:
        answer_unknown(k, call, fault)


def give_up_waiting(k: Context, mount: Mount) -> None:
    """The circuit opened or the mount was disabled: whoever waits for it is told now."""
    fault = mount.last_fault or Fault("process", "unavailable", mount.generation)
    if isinstance(mount.phase, Disabled):
        fault = Fault("process", "disabled", mount.generation)
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        if call.mount != mount.name:
            continue
        match call.state:
            case Queued() if call.attempts == 0:
                answering.answer_error(k, call, UNAVAILABLE, fault, "not_started", "later")
            case Queued():
                answering.answer_error(k, call, UNAVAILABLE, fault, "unknown", advice(call))
            case Held():
                answer_unknown(k, call, fault)
            case _:
                pass


def end_all(k: Context) -> None:
    """The session ends with work unfinished: everyone still waiting is told what is known."""
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        fault = Fault("process", "closing", k.state.mounts[call.mount].generation)
        if isinstance(call.state, Parked):
            answering.finish(k, call, None)
        elif call.attempts == 0:
            answering.answer_error(k, call, UNAVAILABLE, fault, "not_started", "later")
        else:
            answer_unknown(k, call, fault)


# --- probes ---------------------------------------------------------------------------------------------------


def resume(k: Context, mount: Mount) -> None:
    """Where a generation serves, ask it about every call whose outcome only a probe may decide."""
    link = mount.serving_link()
    if link is None:
        return
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        if call.mount == mount.name and isinstance(call.state, Held):
            probe(k, link, call)


def probe(k: Context, link: Link, call: Invocation) -> None:
    if not isinstance(call.state, Held) or not isinstance(call.replay, ProbeRequired):
        return
    try:
        method, params = _question(k, call, call.replay)
    except (LookupError, ValueError, msgspec.MsgspecError):
        answer_unknown(k, call, Fault("ambiguous", "probe_impossible", link.generation))
        return
    call.probes += 1
    identity = opening.ask(k, link, method, params, ForProbe(call.seq))
    call.state = Probing(link.generation, identity, k.now + k.limits.probe_s)
    k.note("probe", mount=call.mount, generation=link.generation, call=call.seq, phase="asked")


def _question(k: Context, call: Invocation, rule: ProbeRequired) -> tuple[str, Members]:
    if not rule.tool:
        key = Raw(_encode(ledger.invocation_key(k, call)))
        return eras.PROBE_METHOD, {"key": key, "tool": Raw(_encode(call.name))}
    lost = msgspec.json.decode(members(call.params or b"{}").get("arguments", Raw(b"{}")))
    arguments = {name: pointer(lost, path) for name, path in rule.arguments.items()}
    return "tools/call", {"name": Raw(_encode(rule.tool)), "arguments": Raw(_encode(arguments))}


def on_probe_answer(k: Context, link: Link, call: Invocation, response: Response) -> None:
    assert isinstance(call.replay, ProbeRequired)
    mount = k.state.mounts[call.mount]
    answer = _read_probe(call.replay, response)
    k.note("probe", mount=call.mount, call=call.seq, phase=type(answer).__name__)
    match answer:
        case Completed(result):
            answering.answer_result(k, call, "handshake", result)  # a probe's result need not be of any era
        case SafeToRetry() if not call.overdue:
            requeue(k, mount, call, call.fault or Fault("process", "lost", link.generation))
        case SafeToRetry():
            # Only its deadline passed: its process lives and may still do it.
            answer_unknown(k, call, call.fault or Fault("timeout", "deadline", link.generation))
        case StillUnknown():
            answer_unknown(k, call, call.fault or Fault("ambiguous", "probe_unknown", link.generation))


def _read_probe(rule: ProbeRequired, response: Response) -> ProbeAnswer:
    """Only a clear answer decides; an error, or anything else, leaves it unknown (law 4)."""
    if response.result is None:
        return STILL_UNKNOWN
    try:
        if rule.tool:
            said = msgspec.json.decode(response.result, type=_ProbeResult).structuredContent or _Probed()
        else:
            said = msgspec.json.decode(response.result, type=_Probed)
        if said.status == "absent":
            return SAFE_TO_RETRY
        if said.status == "done":
            return Completed(_probe_result(said.result, response.result))
    except (msgspec.MsgspecError, ValueError):
        pass
    return STILL_UNKNOWN


def _probe_result(result: Raw, whole: Raw) -> Raw:
    """The lost call's result: the probe's `result` member as a tool result, or the probe's own."""
    text = bytes(result)
    if text == b"null":
        members(whole)
        return Raw(bytes(whole))
    if text[:1] == b"{":
        found = members(text)
        if "content" in found:
            return Raw(text)
    content: Members = {"content": Raw(_encode([{"type": "text", "text": text.decode()}]))}
    if text[:1] == b"{":
        content["structuredContent"] = Raw(text)
    return encode_members(content)
