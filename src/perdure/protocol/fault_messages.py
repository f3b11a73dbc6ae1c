"""What a client reads of a fault: whole sentences, since several clients show their model nothing but the message.

shop was ended by SIGKILL while place_order ran (sent once). It may or may not have taken effect: check before you …
└─ what happened                                            └─ what is known                      └─ what to do
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from perdure.protocol.faults import Fault, Outcome, Retry

_NAME_CHARACTERS: Final = 80
# What a fault did to a call that ran; its `detail` stands for {0}.
_LOST: Final = {
    "killed": "was {0}",
    "exited": "ended with {0}",
    "unresponsive": "stopped answering ({0})",
    "restarted": "was restarted on request",
    "disabled": "was disabled on request",
    "unmounted": "was taken out of the registry",
    "sign_in_required": "asked for a sign-in",
    "closing": "was ended with the session",
    "host_lost": "was lost with its host",
    "task_forgotten": "was replaced, and the new process does not know the task,",
    "question_lost": "was lost, and the question that this answers with it,",
    "probe_unknown": "was lost, and its probe cannot tell the outcome,",
    "probe_impossible": "was lost, and it cannot be asked for the outcome,",
}
# Why a server is not there; its `detail` stands for {0}.
_ABSENT: Final = {
    "killed": "it was {0}",
    "exited": "it ended with {0}",
    "unresponsive": "it stopped answering ({0})",
    "restarted": "it is being restarted on request",
    "unmounted": "it was taken out of the registry",
    "startup_timeout": "it did not get ready in time ({0})",
    "handshake_refused": "it refused the session ({0})",
}
# Nothing is wrong with the server: the call was not taken.
_REFUSED: Final = frozenset({"deadline", "too_many_pending", "queue_full", "closing", "call_not_recorded"})
_UNREADABLE: Final = frozenset({"unreadable_answer", "answer_too_large"})


def describe_fault(
    fault: Fault, cause: Fault, *, mount: str, call: str, attempts: int, outcome: Outcome, retry: Retry
) -> str:
    """The message of a host error. `cause` is what led to the fault, where that is another one."""
    server = mount or "the server"
    what = call[:_NAME_CHARACTERS] or "the call"
    if fault.code == "untrusted":
        return f"{what} did not run. {fault.detail}"  # says all of it, the command to type included
    happened = _happened(fault, cause, server, what, attempts, outcome)
    advice = _advice(fault, cause, server, outcome, retry)
    if outcome == "not_started":
        return f"{happened}. {what if call else 'The call'} did not run. {advice}"
    if fault.code == "answer_not_kept":
        return f"{happened}. Look for its effect before you send it again."
    return f"{happened}. It may or may not have taken effect{advice}"


def _happened(fault: Fault, cause: Fault, server: str, what: str, attempts: int, outcome: Outcome) -> str:
    if outcome == "not_started":
        match fault.code:
            case "deadline":
                return f"{what} waited too long for {server}"
            case "too_many_pending" | "queue_full" | "worker_queue_full":
                return f"{what} was not sent to {server}: {fault.detail or 'too many calls wait already'}"
            case "closing":
                return f"{what} was not sent to {server}: the session is closing"
            case "call_not_recorded":
                return f"{what} was not sent to {server}: perdure serve cannot write its record of it ({_reason(fault)})"
            case "disabled":
                return f"{server} is not available: it is disabled"
            case _:
                absent = _ABSENT.get(cause.code, "{0}")
                return f"{server} is not available: {absent.format(_reason(cause))}"
    sent = "sent once" if attempts == 1 else f"sent {attempts} times"
    match fault.code:
        case "deadline" | "probe_timeout" if fault.detail:
            return f"{server} did not finish {what} in time ({fault.detail}, {sent})"
        case "replays_exhausted":
            return (
                f"{server} was lost each time that {what} was sent to it ({sent}; at last {_reason(cause)})"
            )
        case "answer_not_kept":
            return f"{what} ran once, but its answer was not read in time and is no longer kept ({_reason(fault)})"
        case "queue_full":
            return f"{server} was lost while {what} ran ({_reason(cause)}), and its queue is full"
        case code if code in _UNREADABLE:
            return f"{server} answered {what} with something that cannot be passed on ({_reason(cause)})"
        case _:
            lost = _LOST.get(cause.code, f"was lost ({_reason(cause)})").format(cause.detail or cause.code)
            return f"{server} {lost} while {what} ran ({sent})"


def _reason(cause: Fault) -> str:
    return cause.detail or cause.code.replace("_", " ")


def _advice(fault: Fault, cause: Fault, server: str, outcome: Outcome, retry: Retry) -> str:
    if outcome == "unknown":
        return "; it is safe to send it again." if retry == "safe" else ": check before you send it again."
    hint = fault.hint or cause.hint
    match fault.code:
        case "disabled":
            return f"To enable it, call mounts with action=enable and name={server}."
        case "circuit_open" if not hint:
            return f"It is started again by itself; to do it now, call mounts with action=restart and name={server}."
        case "stopped" | "spawn_failed" | "circuit_open" if not hint.startswith("perdure "):
            first = f"{hint[:1].upper()}{hint[1:]}, then call" if hint else "Call"
            return f"{first} mounts with action=restart and name={server}."
    if hint.startswith("perdure "):
        return f"Ask the user to type: {hint}"
    if hint:
        return f"{hint[:1].upper()}{hint[1:]}."
    if cause.code in _ABSENT and fault.code not in _REFUSED:
        return "It is started again by itself: send the call again in a moment."
    return "Send it again." if retry == "safe" else "Send it again later."


def host_error(
    number: int,
    fault: Fault,
    *,
    mount: str,
    call: str,
    attempts: int,
    outcome: Outcome,
    retry: Retry,
    cause: Fault | None = None,
) -> Raw:
    """The JSON-RPC error a client sees for a fault of the host or of something behind it.

    Its message says all of it: many clients drop `data`. `cause` is the fault that led to this one.
    """
    message = describe_fault(
        fault, cause or fault, mount=mount, call=call, attempts=attempts, outcome=outcome, retry=retry
    )
    data: dict[str, object] = {
        "class": fault.fault_class,
        "code": fault.code,
        "mount": mount,
        "generation": fault.generation,
        "attempts": attempts,
        "outcome": outcome,
        "retry": retry,
    }
    if fault.detail:
        data["detail"] = fault.detail
    if fault.hint:
        data["hint"] = fault.hint
    return Raw(msgspec.json.encode({"code": number, "message": message, "data": data}))
