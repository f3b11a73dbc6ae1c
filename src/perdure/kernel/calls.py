"""The machine of the calls: each request of the client's from its acceptance to its one answer. Every transition is here.

| state | event | next state |
|---|---|---|
| (new) | accepted | Queued |
| (new) | too many pending, or its server is unavailable | (answered: not started) |
| Queued | its server is ready and nothing that conflicts is undecided | InFlight |
| Queued | deadline, server given up, queue full | (answered) |
| InFlight, Overdue | the server answers | (answered) |
| InFlight | deadline, and no question of the server's is open | Overdue: the server is pinged |
| Overdue | progress | InFlight |
| Overdue | deadline, or the server is alive | (answered: unknown), or Held where a probe can decide |
| InFlight, Overdue, Asking | the server is lost: Convergent | Queued |
| InFlight, Overdue, Asking | the server is lost: ProbeRequired | Held |
| InFlight, Overdue, Asking | the server is lost: NeverReplay | (answered: unknown) |
| InFlight, Overdue | a handshake server asks, the client is of 2026 | Parked |
| InFlight, Overdue | a 2026 server asks for input, the client is of the handshake era | Asking |
| Parked | the server answers | Answered |
| Parked | the client retries with the ticket | InFlight, or Parked again while questions are open |
| Answered | the client retries with the ticket | (answered) |
| Parked, Answered | the client does not come back, or the server is lost | (forgotten) |
| Asking | the client answered every question | InFlight |
| Asking | the client refuses, or the questions expire | (answered) |
| Held | a generation serves | Probing |
| Held, Probing | deadline | (answered: unknown) |
| Probing | done | (answered) |
| Probing | absent | Queued; (answered: unknown) where the call was only late, for its process may still do it |
| Probing | still unknown | (answered: unknown) |
| Probing | the server is lost | Held |
| Queued, InFlight, Overdue, Held, Probing | it runs for `task_after_s` | the same; its request is answered with a task |
| any | the client cancels | (forgotten) |
| any | the session ends | (answered) |

A lost server and the redoing of its work are two decisions: `mounts` makes the first, this machine the second.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel import metrics, server_requests
from perdure.kernel.call_frames import (
    advice,
    child_params,
    conflict_keys_at,
    error_of,
    modern_error,
    probe_question,
    read_probe,
    shape_result,
)
from perdure.kernel.child_requests import send_request
from perdure.kernel.client_requests import Incoming, scalar
from perdure.kernel.context import Context
from perdure.kernel.events import NotRecorded
from perdure.kernel.internal_events import (
    CallDetached,
    DetachedCallEnded,
    LivenessDoubted,
    ServerNeeded,
    SessionCallSucceeded,
    TaskAnswered,
    TaskCreated,
    TaskQuestionsChanged,
)
from perdure.kernel.metrics import Ending
from perdure.kernel.state import (
    Answered,
    Ask,
    Asking,
    Disabled,
    Draining,
    Ended,
    ForCall,
    ForProbe,
    Held,
    Idle,
    InFlight,
    Invocation,
    Link,
    Mount,
    Open,
    Overdue,
    Parked,
    Probing,
    Queued,
    ReadKeys,
    Route,
    Stopped,
    Task,
    UnreadKeys,
)
from perdure.kernel.task_frames import (
    answer_to,
    created_result,
    error_in,
    new_handle,
    read_created,
    with_handle,
    with_related_handle,
)
from perdure.protocol import eras
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import (
    DEADLINE,
    OUTCOME_UNKNOWN,
    PERMANENT,
    QUEUE_FULL,
    REPLAYS_EXHAUSTED,
    TOO_MANY_PENDING,
    UNAVAILABLE,
    Fault,
    Outcome,
    Retry,
)
from perdure.protocol.frames import (
    INVALID_REQUEST,
    Members,
    RequestId,
    Response,
    encode_members,
    encode_notification,
    encode_raw_error,
    encode_request,
    encode_result,
    joined,
    members,
)
from perdure.protocol.replay import (
    CONVERGENT,
    NEVER,
    READ_METHODS,
    Completed,
    Convergent,
    NeverReplay,
    ProbeRequired,
    SafeToRetry,
    StillUnknown,
)

_encode = msgspec.json.encode

_SUBSCRIBING: Final = frozenset({"resources/subscribe", "resources/unsubscribe"})
_SESSION_METHODS: Final = _SUBSCRIBING | {"resources/read", "logging/setLevel"}


# --- accept ----------------------------------------------------------------------------------------------


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
        k.emit(ServerNeeded(mount))
    dispatch_ready(k, mount)
    if not isinstance(call.state, Queued) or call.seq not in k.state.calls:
        return
    classify(k, call)
    if len(mount.queue) > k.limits.queue:
        mount.queue.remove(call.seq)
        fault = Fault("resource", "queue_full", mount.generation, f"{k.limits.queue} requests wait already")
        answer_error(k, call, QUEUE_FULL, fault, "not_started", "later", "host_error")


def refuse(k: Context, call: Invocation, number: int, fault: Fault, cause: Fault | None = None) -> None:
    """Answer a request that was never taken in."""
    metrics.call_ended(k, call, "host_error", fault.code)
    error = error_of(call, number, fault, "not_started", "later", cause)
    k.to_client(encode_raw_error(call.public_id, error))


def refuse_unavailable(k: Context, mount: Mount, call: Invocation) -> None:
    if sentence := k.specs[mount.name].untrusted:
        waiting = Fault("process", "untrusted", mount.generation, sentence)
        refuse(k, call, UNAVAILABLE, waiting)
        return
    last_fault = mount.last_fault
    detail = f"{last_fault.fault_class}/{last_fault.code}" if last_fault is not None else ""
    hint = ""
    match mount.phase:
        case Disabled():
            code, detail, hint = "disabled", "", "enable it with the mounts tool"
        case Stopped():
            code, hint = "stopped", "restart it with the mounts tool"
            if last_fault is not None and last_fault.code in PERMANENT:
                detail, hint = last_fault.detail, last_fault.hint
        case _:
            code = "circuit_open"
    fault = Fault(last_fault.fault_class if last_fault else "process", code, mount.generation, detail, hint)
    refuse(k, call, UNAVAILABLE, fault, last_fault)


def on_not_recorded(k: Context, event: NotRecorded) -> None:
    """A dispatch that did not happen. The call is refused: without its record it could be made twice."""
    call = k.state.calls.get(event.seq)
    if call is None or not isinstance(call.state, InFlight) or call.attempts != 1:
        return
    call.attempts = 0
    fault = Fault(
        "resource", "call_not_recorded", call.state.generation, event.reason, "free some disk space"
    )
    answer_error(k, call, UNAVAILABLE, fault, "not_started", "later", "host_error")


def classify(k: Context, call: Invocation) -> None:
    """Give the call its replay class and where its conflict keys are, by the catalog that is active now (law 3)."""
    spec = k.specs[call.mount]
    call.timeout = spec.call_s
    if call.method != "tools/call":
        call.replay = CONVERGENT if call.method in READ_METHODS else NEVER
    else:
        entry = k.public.tool(spec.prefix + call.name)
        if entry is None or entry.mount != call.mount:
            call.replay, call.conflicts = NEVER, ReadKeys()
        else:
            call.replay = entry.replay
            call.conflicts = UnreadKeys(entry.conflict) if entry.conflict else ReadKeys()
            call.timeout = entry.deadline_s or spec.call_s
            call.is_wait = entry.waits
    if call.attempts == 0:
        call.deadline = call.accepted_at + call.timeout


def _conflict_keys(call: Invocation) -> tuple[str, ...]:
    if isinstance(call.conflicts, UnreadKeys):
        call.conflicts = ReadKeys(conflict_keys_at(call, call.conflicts.pointers))
    return call.conflicts.keys


# --- dispatch --------------------------------------------------------------------------------------------


def dispatch_ready(k: Context, mount: Mount) -> None:
    """Dispatch, oldest first, whatever may go. Only work that conflicts waits (law 7)."""
    link = mount.serving_link()
    if link is None or not mount.queue:
        return
    barred = _barred_keys(k, mount)
    free = k.limits.in_flight - len(k.calls_on(link))
    for seq in list(mount.queue):
        if free <= 0 or link.backlog > k.limits.outbox_bytes:
            return
        call = k.state.calls[seq]
        if call.attempts == 0:
            classify(k, call)
        if barred and not barred.isdisjoint(_conflict_keys(call)):
            barred.update(_conflict_keys(call))
            continue
        mount.queue.remove(seq)
        free -= 1
        dispatch(k, k.task_link(call) or link, call)


def _barred_keys(k: Context, mount: Mount) -> set[str]:
    """What an undecided call, or one still running on a fenced generation, may be changing."""
    barred: set[str] = set()
    for call in k.state.calls.values():
        if call.mount != mount.name or call.conflicts == ReadKeys():
            continue
        match call.state:
            case Queued():
                pass
            case Held() | Probing():
                barred.update(_conflict_keys(call))
            case state:
                if isinstance(mount.links[state.generation].stage, Draining):
                    barred.update(_conflict_keys(call))
    return barred


def dispatch(k: Context, link: Link, call: Invocation) -> None:
    """Mark, then send: from here on the call may have happened (law 1)."""
    if link.era == "modern" and call.method in _SUBSCRIBING:
        # A 2026 server has no such request: its stream carries the set.
        k.emit(SessionCallSucceeded(link, call))
        answer_result(k, call, "handshake", b"{}")
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
    k.state.routes[child_id] = Route(link.mount, link.generation, ForCall(call.seq))
    extra = {key: Raw(value) for key, value in call.extra.items()}
    k.to_child(link, encode_request(child_id, call.method, child_params(k, link, call, child_id), extra))


# --- answer ----------------------------------------------------------------------------------------------


def on_answer(k: Context, link: Link, call: Invocation, response: Response) -> None:
    if isinstance(call.state, Parked):
        keep_answer(k, call, response)
    elif response.result is not None:
        is_asked = link.era == "modern" and (call.era == "handshake" or bool(call.task))
        if is_asked and ask_inputs(k, link, call, response.result):
            return
        try:
            result = shape_result(k, call, link.era, response.result)
            if (created := read_created(call, link.era, response.result)) is not None:
                _answer_task(k, link, call, result, created)
                return
            if call.method in eras.TASK_METHODS:
                result = _read_task_answer(k, link, call, response, result)
        except ValueError:
            fault = Fault("protocol", "unreadable_answer", link.generation, "the result is ambiguous")
            on_unreadable_answer(k, call, fault)
            return
        if call.method in _SESSION_METHODS:
            k.emit(SessionCallSucceeded(link, call))
        _answer(k, call, result, response.extra)
    else:
        if call.method in eras.TASK_METHODS:
            k.emit(TaskAnswered(link, call, response))
            task = k.state.tasks.get(call.name)
            if task is not None and isinstance(task.place, Ended):
                _answer_from_record(k, call, task)  # never "unknown task": the record says what became of it
                return
        error = (
            response.error if response.error is not None else Raw(b'{"code":-32603,"message":"bad answer"}')
        )
        if call.era == "modern":
            error = modern_error(error)
        finish(k, call, "response_error")
        _send_error(k, call, error, response.extra)


def on_unreadable_answer(k: Context, call: Invocation, fault: Fault) -> None:
    """The server answered, so it ran; what it said cannot be passed on."""
    k.note(
        "fault",
        mount=call.mount,
        generation=fault.generation,
        code=fault.code,
        **{"class": fault.fault_class},
    )
    if isinstance(call.state, Parked):
        error = error_of(call, OUTCOME_UNKNOWN, fault, "unknown", advice(call))
        keep_answer(k, call, Response(None, error=error))
    else:
        answer_unknown(k, call, fault)


def answer_result(k: Context, call: Invocation, era: eras.Era, result: Raw | bytes) -> None:
    """The one terminal answer, from a server of this era. Raises ValueError for a result that is ambiguous."""
    _answer(k, call, shape_result(k, call, era, result), None)


def _answer(k: Context, call: Invocation, result: Raw | bytes, extra: Members | None) -> None:
    ending = metrics.result_ending(call.method, result)
    is_ours = ending == "tool_error" and k.specs[call.mount].builtin
    finish(k, call, ending, metrics.failure_code(result) if is_ours else "")
    k.state.metrics.consecutive_failures = 0
    if call.task:
        k.emit(DetachedCallEnded(call, result=bytes(result)))
    else:
        k.to_client(encode_result(call.public_id, result, extra))


def _send_error(k: Context, call: Invocation, error: Raw, extra: Members | None = None) -> None:
    if call.task:
        k.emit(DetachedCallEnded(call, error=bytes(error)))
    else:
        k.to_client(encode_raw_error(call.public_id, error, extra))


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
    _send_error(k, call, error)


def answer_unknown(k: Context, call: Invocation, fault: Fault) -> None:
    """The honest answer where nothing may be redone: the call was sent, and its outcome is unknown."""
    match call.state:
        case Overdue() | Held(may_run=True) | Probing(may_run=True):
            number = DEADLINE
        case _:
            number = OUTCOME_UNKNOWN
    answer_error(k, call, number, fault, "unknown", advice(call))


def finish(k: Context, call: Invocation, ending: Ending | None, code: str = "") -> None:
    """Forget a call; `code` says why it failed. Whatever still arrives for it is late and is dropped (law 5)."""
    server_requests.withdraw_for(k, call)
    mount = k.state.mounts[call.mount]
    if call.seq in mount.queue:
        mount.queue.remove(call.seq)
    match call.state:
        case InFlight(_, child_id) | Overdue(_, child_id) | Probing(_, child_id) | Parked(_, child_id):
            k.state.routes.pop(child_id, None)
        case _:
            pass
    del k.state.calls[call.seq]
    if k.state.ids.get(call.public_id) == call.seq:
        del k.state.ids[call.public_id]
    if ending is not None:
        metrics.call_ended(k, call, ending, code)


def on_progress(k: Context, link: Link, params: Members) -> None:
    """Progress under the client's own token, never going back, whatever attempt it comes from (law 6)."""
    token = scalar(params.get("progressToken"))
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
    if call.token is None or not isinstance(call.state, InFlight | Overdue):
        return
    call.state = InFlight(call.state.generation, call.state.child_id)
    call.deadline = k.now + call.timeout
    if call.progress is not None and value <= call.progress:
        return
    call.progress = value
    if call.task:
        return  # its request is answered, and with it the token ended
    public_params = {**params, "progressToken": Raw(_encode(call.token))}
    k.to_client(encode_notification("notifications/progress", encode_members(public_params)))


# --- cancel ----------------------------------------------------------------------------------------------


def cancel(k: Context, public_id: RequestId) -> None:
    """The client no longer wants an answer (law 9): queued work goes, running work is told."""
    seq = k.state.ids.get(public_id)
    if seq is None:
        return
    withdraw(k, k.state.calls[seq])


def withdraw(k: Context, call: Invocation, reason: str = "cancelled by the client") -> None:
    match call.state:
        case InFlight(generation, child_id) | Overdue(generation, child_id) | Parked(generation, child_id):
            link = k.link(call.mount, generation)
            if link is not None and child_id in k.state.routes:
                params = _encode({"requestId": child_id, "reason": reason})
                k.to_child(link, encode_notification("notifications/cancelled", params))
        case _:
            pass
    finish(k, call, None)
    if call.task:
        k.emit(DetachedCallEnded(call))
    k.note("dispatch", call=call.seq, phase="cancelled")


# --- deadline --------------------------------------------------------------------------------------------


def timers(k: Context) -> list[float]:
    times = [call.deadline for call in k.state.calls.values()] + server_requests.timers(k)
    if k.limits.task_after_s > 0:
        times += [_task_due(k, call) for call in k.state.calls.values() if _may_become_task(k, call)]
    return times


def tick(k: Context) -> None:
    server_requests.tick(k)
    for call in list(k.state.calls.values()):
        if _may_become_task(k, call) and _task_due(k, call) <= k.now:
            _detach(k, call)
        if call.seq in k.state.calls and call.deadline <= k.now:
            _on_deadline(k, call)


def _on_deadline(k: Context, call: Invocation) -> None:
    match call.state:
        case Queued():
            late = Fault("timeout", "deadline", k.state.mounts[call.mount].generation, "waited too long")
            if call.attempts == 0:
                answer_error(k, call, DEADLINE, late, "not_started", "safe")
            else:
                answer_error(k, call, DEADLINE, late, "unknown", advice(call))
        case Held() | Probing():
            answer_unknown(k, call, Fault("timeout", "probe_timeout", 0, "the probe did not answer"))
        case Parked() | Answered():
            withdraw(k, call, "the client did not come back with an answer")
        case Asking():
            call.deadline = k.now + call.timeout
        case InFlight() | Overdue() if server_requests.is_waited_for(k, call):
            call.deadline = k.now + call.timeout  # a person may be thinking
        case InFlight(generation, child_id):
            call.state = Overdue(generation, child_id)
            call.deadline = k.now + k.limits.ping_s + 1.0
            k.emit(LivenessDoubted(k.state.mounts[call.mount].links[generation]))
        case Overdue(generation):
            _answer_deadline(k, k.state.mounts[call.mount].links[generation], call, call.state)


def on_alive(k: Context, link: Link) -> None:
    """The server lives: what it has not answered in time ends alone."""
    for call in k.in_flight(link):
        if isinstance(call.state, Overdue):
            _answer_deadline(k, link, call, call.state)


def _answer_deadline(k: Context, link: Link, call: Invocation, overdue: Overdue) -> None:
    params = _encode({"requestId": overdue.child_id, "reason": "deadline exceeded"})
    k.to_child(link, encode_notification("notifications/cancelled", params))
    fault = Fault("timeout", "deadline", link.generation, f"no answer within {call.timeout:g} s")
    k.note("fault", mount=call.mount, generation=link.generation, **{"class": "timeout"}, code="deadline")
    if isinstance(call.replay, ProbeRequired):
        k.state.routes.pop(overdue.child_id, None)
        hold(k, call, fault, may_run=True)
        probe_held(k, k.state.mounts[call.mount])
        return
    answer_error(k, call, DEADLINE, fault, "unknown", advice(call))


# --- loss of the server ----------------------------------------------------------------------------------


def on_generation_lost(k: Context, link: Link, fault: Fault) -> None:
    """Settle what the generation held, oldest first. A successor that serves already is probed at once."""
    mount = k.state.mounts[link.mount]
    for call in sorted(k.calls_on(link), key=lambda c: c.seq):
        settle_lost(k, mount, call, fault)
    probe_held(k, mount)


def settle_lost(k: Context, mount: Mount, call: Invocation, fault: Fault) -> None:
    """What the replay class allows for one call whose attempt was lost (law 3)."""
    if call.method in eras.TASK_METHODS:
        task = k.state.tasks.get(call.name)
        if task is not None and isinstance(task.place, Ended):
            _answer_from_record(k, call, task)  # only the record still knows it
            return
    match call.state, call.replay:
        case Parked() | Answered(), _:
            # Its question was the answer to the last request; the retry will find the ticket gone.
            finish(k, call, None)
        case Probing(may_run=may_run), _:
            hold(k, call, fault, may_run=may_run)  # what may run it need not be the process that was asked
        case _, Convergent():
            requeue(k, mount, call, fault)
        case _, ProbeRequired():
            hold(k, call, fault, may_run=False)  # its process is gone: what a probe finds absent stays absent
        case _, NeverReplay():
            answer_unknown(k, call, fault)


def take_up_lost(k: Context, lost: Sequence[Invocation]) -> None:
    """Take in what a host that was killed had sent on, and settle it: the servers died with the host."""
    fault = Fault("process", "host_lost", 0, "the host was ended while the call was running")
    for call in lost:
        k.state.calls[call.seq] = call
        k.state.ids[call.public_id] = call.seq
        mount = k.state.mounts.get(call.mount)
        if mount is None:
            answer_unknown(k, call, fault)
        else:
            settle_lost(k, mount, call, fault)


def requeue(k: Context, mount: Mount, call: Invocation, fault: Fault) -> None:
    """Back to its old place in the queue. Waiting costs nothing; only a redispatch is a replay (law 2)."""
    budget = k.limits.probes if isinstance(call.replay, ProbeRequired) else k.limits.replays
    if call.replays >= budget:
        spent = Fault("replay", "replays_exhausted", fault.generation, f"{fault.fault_class}/{fault.code}")
        answer_error(k, call, REPLAYS_EXHAUSTED, spent, "unknown", advice(call), cause=fault)
        return
    if len(mount.queue) >= k.limits.queue:
        full = Fault("resource", "queue_full", fault.generation, f"{fault.fault_class}/{fault.code}")
        answer_error(k, call, QUEUE_FULL, full, "unknown", advice(call), cause=fault)
        return
    call.state = Queued()
    call.deadline = k.now + call.timeout
    insort(mount.queue, call.seq)


def hold(k: Context, call: Invocation, fault: Fault, *, may_run: bool) -> None:
    if call.probes >= k.limits.probes:
        answer_unknown(k, call, fault)
        return
    call.state = Held(fault, may_run)
    call.deadline = k.now + call.timeout


def give_up_waiting(k: Context, mount: Mount) -> None:
    """The circuit opened or the mount was disabled: answer every call that waits for it."""
    fault = mount.last_fault or Fault("process", "unavailable", mount.generation)
    if isinstance(mount.phase, Disabled):
        fault = Fault("process", "disabled", mount.generation)
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        if call.mount != mount.name:
            continue
        match call.state:
            case Queued() if call.attempts == 0:
                answer_error(k, call, UNAVAILABLE, fault, "not_started", "later")
            case Queued():
                answer_error(k, call, UNAVAILABLE, fault, "unknown", advice(call))
            case Held():
                answer_unknown(k, call, fault)
            case _:
                pass


def end_all(k: Context) -> None:
    """The session ends with work unfinished: answer every call with what is known of it."""
    for call in sorted(k.state.calls.values(), key=lambda c: c.seq):
        fault = Fault("process", "closing", k.state.mounts[call.mount].generation)
        if isinstance(call.state, Parked | Answered):
            finish(k, call, None)
        elif call.attempts == 0:
            answer_error(k, call, UNAVAILABLE, fault, "not_started", "later")
        else:
            answer_unknown(k, call, fault)


# --- probe -----------------------------------------------------------------------------------------------


def probe_held(k: Context, mount: Mount) -> None:
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
    held = call.state
    try:
        method, params = probe_question(k, call, call.replay)
    except (LookupError, ValueError, msgspec.MsgspecError):
        answer_unknown(k, call, Fault("ambiguous", "probe_impossible", link.generation))
        return
    call.probes += 1
    identity = send_request(k, link, method, params, ForProbe(call.seq))
    call.state = Probing(link.generation, identity, held.fault, held.may_run)
    call.deadline = k.now + k.limits.probe_s
    k.note("probe", mount=call.mount, generation=link.generation, call=call.seq, phase="asked")


def on_probe_answer(k: Context, link: Link, call: Invocation, response: Response) -> None:
    assert isinstance(call.replay, ProbeRequired)
    assert isinstance(call.state, Probing)
    mount = k.state.mounts[call.mount]
    answer = read_probe(call.replay, response)
    k.note("probe", mount=call.mount, call=call.seq, phase=type(answer).__name__)
    match answer:
        case Completed(result):
            answer_result(k, call, "handshake", result)  # a probe's result need not be of any era
        case SafeToRetry() if not call.state.may_run:
            requeue(k, mount, call, call.state.fault)
        case SafeToRetry() | StillUnknown():
            answer_unknown(k, call, call.state.fault)


# --- tasks -----------------------------------------------------------------------------------------------


def _may_become_task(k: Context, call: Invocation) -> bool:
    """Whether the client can be answered with a task: it says so, and its request has no answer yet."""
    return (
        k.limits.task_after_s > 0
        and not call.task
        and call.method == "tools/call"
        and eras.TASKS in call.abilities
        and not isinstance(call.state, Parked | Answered | Asking)
        and k.has_task_room()
    )


def _task_due(k: Context, call: Invocation) -> float:
    return call.accepted_at + k.limits.task_after_s


def _detach(k: Context, call: Invocation) -> None:
    call.task = new_handle(k.state.session.session_id, k.mint())
    del k.state.ids[call.public_id]
    k.note("dispatch", mount=call.mount, call=call.seq, phase="task")
    k.emit(CallDetached(call))


def _answer_task(k: Context, link: Link, call: Invocation, result: Raw | bytes, task: Members) -> None:
    """The server goes on with the call as a task of its own: from now on `tasks` follows it."""
    if not call.task and not k.has_task_room():
        fault = Fault(
            "resource", "too_many_tasks", link.generation, f"{k.limits.tasks} tasks are kept already"
        )
        answer_error(k, call, TOO_MANY_PENDING, fault, "unknown", "never", "host_error")
        return
    handle = call.task or new_handle(k.state.session.session_id, k.mint())
    k.emit(TaskCreated(link, call, handle, task))
    if call.task:
        finish(k, call, "success")
    else:
        _answer(k, call, created_result(link.era, result, handle), None)


def _read_task_answer(
    k: Context, link: Link, call: Invocation, response: Response, result: Raw | bytes
) -> Raw | bytes:
    """The answer to a request about a task, with the handle in the place of the server's own id.

    Where it is not about this task (another process gave its id to another one), the record answers.
    """
    task = k.state.tasks.get(call.name)
    k.emit(TaskAnswered(link, call, response))
    if call.method == "tasks/result":
        return with_related_handle(result, call.name)
    answer = members(result)
    if "taskId" not in answer:
        return result
    if task is not None and isinstance(task.place, Ended) and task.seen != with_handle(answer, call.name):
        return shape_result(k, call, "handshake", answer_to(task, call.method, call.era))
    return encode_members({**answer, "taskId": Raw(_encode(call.name))})


def on_task_ended(k: Context, task: Task) -> None:
    """Answer what waits for a server that will not say more about the task."""
    for call in list(k.state.calls.values()):
        is_about_it = call.method in eras.TASK_METHODS and call.name == task.handle
        if is_about_it and isinstance(call.state, Queued):
            _answer_from_record(k, call, task)


def _answer_from_record(k: Context, call: Invocation, task: Task) -> None:
    if call.method == "tasks/result" and task.result is None:
        finish(k, call, "response_error")
        _send_error(k, call, error_in(task))
    else:
        answer_result(k, call, "handshake", answer_to(task, call.method, call.era))


def cancel_detached(k: Context, seq: int) -> None:
    withdraw(k, k.state.calls[seq])


def on_task_input(k: Context, seq: int, answers: Members) -> None:
    """Hand the client's answers to the server that asked. Names that nobody asked under are ignored."""
    call = k.state.calls[seq]
    for identity, ask in list(k.state.asks.items()):
        if ask.call != seq or ask.input_key not in answers:
            continue
        link = k.link(ask.mount, ask.generation)
        if ask.child_id is None:
            del k.state.asks[identity]
            on_input_answer(k, identity, ask, Response(None, result=answers[ask.input_key]))
        elif link is not None:
            server_requests.take_answers(k, link, call, answers)
    k.emit(TaskQuestionsChanged(call))


# --- questions in the course of a call -------------------------------------------------------------------


def park(k: Context, call: Invocation) -> None:
    """Answer the client's request with the open questions; the call itself goes on in its server."""
    if call.task:
        k.emit(TaskQuestionsChanged(call))
        return
    if not isinstance(call.state, InFlight | Overdue):
        return
    ticket = f"perdure.{k.state.session.session_id}.{call.seq}.{k.mint()}"
    result: Members = {
        "resultType": Raw(b'"input_required"'),
        "inputRequests": encode_members(server_requests.open_questions(k, call)),
        "requestState": Raw(_encode(ticket)),
        "_meta": encode_members({eras.META_SERVER: Raw(k.public.identity(call.mount))}),
    }
    public_id = call.public_id
    del k.state.ids[public_id]
    call.state = Parked(call.state.generation, call.state.child_id, ticket)
    call.deadline = k.now + call.timeout
    metrics.ended(k, call.method, call.accepted_at, "success")
    k.to_client(encode_result(public_id, encode_members(result)))


def keep_answer(k: Context, call: Invocation, response: Response) -> None:
    """The server answered without waiting for the client: hold it until the client comes back."""
    assert isinstance(call.state, Parked)
    call.state = Answered(
        call.state.generation,
        call.state.ticket,
        bytes(response.result) if response.result is not None else None,
        bytes(response.error) if response.error is not None else None,
    )


def resume_parked(k: Context, request: Incoming, ticket: str) -> None:
    """The client comes back with answers: hand them to the server and go on waiting for its result."""
    metrics.accepted(k, request.method)
    for call in k.state.calls.values():
        match call.state:
            case Parked() | Answered() if call.state.ticket == ticket and call.method == request.method:
                _take_up(k, request, call, call.state)
                return
            case _:
                pass
    fault = Fault("process", "question_lost", 0, "the server that asked is gone")
    metrics.ended(k, request.method, k.now, "recovery_error")
    error = host_error(
        OUTCOME_UNKNOWN,
        fault,
        mount="",
        call=request.method,
        attempts=1,
        outcome="unknown",
        retry="never",
    )
    k.to_client(encode_raw_error(request.id, error))


def _take_up(k: Context, request: Incoming, call: Invocation, parked: Parked | Answered) -> None:
    link = k.state.mounts[call.mount].links[parked.generation]
    call.public_id = request.id
    call.accepted_at = k.now
    call.token = request.token
    call.progress = None
    k.state.ids[request.id] = call.seq
    try:
        answers = members(request.params.get("inputResponses", Raw(b"{}")))
    except ValueError:
        answers = {}
    server_requests.take_answers(k, link, call, answers)
    if isinstance(parked, Answered):
        response = Response(
            None,
            Raw(parked.result) if parked.result is not None else None,
            Raw(parked.error) if parked.error is not None else None,
        )
        on_answer(k, link, call, response)
        return
    call.state = InFlight(parked.generation, parked.child_id)
    call.deadline = k.now + call.timeout
    if any(ask.call == call.seq for ask in k.state.asks.values()):
        park(k, call)


def ask_inputs(k: Context, link: Link, call: Invocation, result: Raw) -> bool:
    """Whether the result is a question. If so the client is asked; its answers go back with the same call."""
    try:
        required = server_requests.read_input_required(result)
    except msgspec.MsgspecError:
        call.rounds += 1
        _abort(k, call, INVALID_REQUEST, "the server asked something unreadable")
        return True
    if required is None:
        return False
    call.rounds += 1
    if missing := server_requests.missing_ability(k, required):
        _abort(k, call, eras.MISSING_CAPABILITY, f"the server needs the client capability {missing}")
    elif call.rounds > k.limits.input_rounds:
        _abort(k, call, INVALID_REQUEST, "the server keeps asking for input")
    elif len(k.state.asks) + len(required.questions) > k.limits.asks:
        _abort(k, call, INVALID_REQUEST, "too many questions are open")
    else:
        asked = server_requests.ask_for_call(k, link, call, required)
        call.state = Asking(link.generation, asked, {}, required.request_state)
        if not asked:
            _send_answers(k, link, call, call.state)
        elif call.task:
            k.emit(TaskQuestionsChanged(call))
    return True


def on_input_answer(k: Context, identity: int, ask: Ask, response: Response) -> None:
    call = k.state.calls[ask.call]
    link = k.link(ask.mount, ask.generation)
    assert isinstance(call.state, Asking)
    assert link is not None
    if response.result is None:
        finish(k, call, "response_error")
        _send_error(k, call, response.error or Raw(b"{}"))
        return
    waiting = {number: key for number, key in call.state.waiting.items() if number != identity}
    answers = {**call.state.answers, ask.input_key: bytes(response.result)}
    call.state = msgspec.structs.replace(call.state, waiting=waiting, answers=answers)
    if not waiting:
        _send_answers(k, link, call, call.state)


def on_input_expired(k: Context, call: Invocation) -> None:
    _abort(k, call, INVALID_REQUEST, "the server's question was not answered in time")


def _abort(k: Context, call: Invocation, code: int, message: str) -> None:
    finish(k, call, "response_error")
    _send_error(k, call, Raw(_encode({"code": code, "message": message})))


def _send_answers(k: Context, link: Link, call: Invocation, asking: Asking) -> None:
    inputs: Members = {}
    if asking.answers:
        inputs["inputResponses"] = encode_members({key: Raw(raw) for key, raw in asking.answers.items()})
    if asking.request_state is not None:
        inputs["requestState"] = Raw(_encode(asking.request_state))
    call.inputs = joined(inputs)
    send(k, link, call, k.mint())
