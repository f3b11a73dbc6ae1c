"""The one answer of each invocation: the result of its server as its client must see it, an error, or none."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel import asks, metrics, recovery, streams
from perdure.kernel.context import Context
from perdure.kernel.metrics import Ending
from perdure.kernel.state import (
    InFlight,
    Invocation,
    Link,
    Parked,
    Probing,
)
from perdure.protocol import eras
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import (
    Fault,
    Outcome,
    Retry,
)
from perdure.protocol.frames import (
    INVALID_PARAMS,
    Members,
    RequestId,
    Response,
    encode_members,
    encode_notification,
    encode_raw_error,
    encode_result,
    members,
)

_encode = msgspec.json.encode


def on_answer(k: Context, link: Link, call: Invocation, response: Response) -> None:
    if isinstance(call.state, Parked):
        asks.keep_answer(k, call, response)
    elif response.result is not None:
        if (
            link.era == "modern"
            and call.era == "handshake"
            and asks.ask_inputs(k, link, call, response.result)
        ):
            return
        try:
            result = _shaped(k, call, link.era, response.result)
        except ValueError:
            fault = Fault("protocol", "unreadable_answer", link.generation, "the result is ambiguous")
            recovery.unreadable(k, call, fault)
            return
        streams.record(k, link, call)
        _answer(k, call, result, response.extra)
    else:
        error = (
            response.error if response.error is not None else Raw(b'{"code":-32603,"message":"bad answer"}')
        )
        if call.era == "modern":
            error = _modern_error(error)
        finish(k, call, "response_error")
        k.to_client(encode_raw_error(call.public_id, error, response.extra))


def answer_result(k: Context, call: Invocation, era: eras.Era, result: Raw | bytes) -> None:
    """The one terminal answer, from a server of this era. Raises ValueError for a result that is ambiguous."""
    _answer(k, call, _shaped(k, call, era, result), None)


def _shaped(k: Context, call: Invocation, era: eras.Era, result: Raw | bytes) -> Raw | bytes:
    """The result as a client of the call's era must see it; untouched where nothing has to differ."""
    if call.era == "modern" and era == "handshake":
        result = eras.modern_result(call.method, result, k.public.identity(call.mount))
    if call.replays > 0 or call.probes > 0:
        result = _say_outcome(call, result)
    return result


def _answer(k: Context, call: Invocation, result: Raw | bytes, extra: Members | None) -> None:
    ending = metrics.result_ending(call.method, result)
    is_ours = ending == "tool_error" and k.specs[call.mount].builtin
    finish(k, call, ending, metrics.failure_code(result) if is_ours else "")
    k.state.metrics.consecutive_failures = 0
    k.to_client(encode_result(call.public_id, result, extra))


def _say_outcome(call: Invocation, result: Raw | bytes) -> Raw:
    """A recovered call says so: how it was settled and how often it was sent."""
    found = members(result)
    try:
        meta = members(found["_meta"]) if "_meta" in found else {}
    except ValueError:
        return Raw(result)  # a `_meta` that is no object is the server's to explain
    outcome: Outcome = "replayed" if call.replays > 0 else "probed_done"
    meta["perdure/outcome"] = Raw(_encode({"outcome": outcome, "attempts": call.attempts}))
    return encode_members({**found, "_meta": encode_members(meta)})


def _modern_error(error: Raw) -> Raw:
    """2026-07-28 retired the code for a missing resource; its clients know it as invalid params."""
    try:
        found = members(error)
    except ValueError:
        return error
    if bytes(found.get("code", Raw(b""))) == str(eras.RESOURCE_NOT_FOUND).encode():
        found["code"] = Raw(str(INVALID_PARAMS).encode())
        return encode_members(found)
    return error


def answer_error(
    k: Context,
    call: Invocation,
    number: int,
    fault: Fault,
    outcome: Outcome,
    retry: Retry,
    ending: Ending = "recovery_error",
    cause: Fault | None = None,
) -> None:
    error = error_of(call, number, fault, outcome, retry, cause)
    finish(k, call, ending, fault.code)
    k.to_client(encode_raw_error(call.public_id, error))


def error_of(
    call: Invocation, number: int, fault: Fault, outcome: Outcome, retry: Retry, cause: Fault | None = None
) -> Raw:
    return host_error(
        number,
        fault,
        mount=call.mount,
        call=call.name or call.method,
        attempts=call.attempts,
        outcome=outcome,
        retry=retry,
        cause=cause,
    )


def finish(k: Context, call: Invocation, ending: Ending | None, code: str = "") -> None:
    """Forget a call; `code` says why it failed. Whatever still arrives for it is late and is dropped (law 5)."""
    asks.withdraw_for(k, call)
    mount = k.state.mounts[call.mount]
    if call.seq in mount.queue:
        mount.queue.remove(call.seq)
    match call.state:
        case InFlight(_, child_id) | Probing(_, child_id) | Parked(_, child_id):
            k.state.routes.pop(child_id, None)
        case _:
            pass
    del k.state.calls[call.seq]
    if k.state.ids.get(call.public_id) == call.seq:
        del k.state.ids[call.public_id]
    if ending is not None:
        metrics.call_ended(k, call, ending, code)


def cancel(k: Context, public_id: RequestId) -> None:
    """The client no longer wants an answer (law 9): queued work goes, running work is told."""
    seq = k.state.ids.get(public_id)
    if seq is None:
        return
    withdraw(k, k.state.calls[seq])


def withdraw(k: Context, call: Invocation, reason: str = "cancelled by the client") -> None:
    match call.state:
        case InFlight(generation, child_id) | Parked(generation, child_id):
            link = k.link(call.mount, generation)
            if link is not None and child_id in k.state.routes:
                params = _encode({"requestId": child_id, "reason": reason})
                k.to_child(link, encode_notification("notifications/cancelled", params))
        case _:
            pass
    finish(k, call, None)
    k.note("dispatch", call=call.seq, phase="cancelled")
