"""The machine of the tasks: the host's own handles for work that outlives its request (law 16a). Every transition is here.

| Task.place | event | next place |
|---|---|---|
| (new) | a server answers a call with a task | AtServer |
| (new) | a call runs longer than `task_after_s` | InCall |
| AtServer, Orphaned | its server says that it ended | Ended |
| AtServer | its generation is lost; its host was killed | Orphaned: the successor is asked, at once if it serves |
| Orphaned | the successor knows it, with the same time of creation | AtServer |
| Orphaned | the successor does not know it, or none will serve | Ended: failed, outcome unknown |
| InCall | the call is answered; its server answers it with a task | Ended; AtServer |
| InCall | `tasks/cancel` | Ended: cancelled; the server is told |
| InCall | its host was killed | Ended: failed, outcome unknown |
| Ended | its time to live is over | (forgotten) |

A task is recorded (`SaveTask`) before the client hears of it, and at each change of its place or status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from perdure.kernel import metrics, server_requests
from perdure.kernel.child_handshake import error_code
from perdure.kernel.child_requests import send_request
from perdure.kernel.client_requests import Incoming, Refusal, reply
from perdure.kernel.context import Context
from perdure.kernel.events import SaveTask
from perdure.kernel.internal_events import (
    CallDetached,
    DetachedCallEnded,
    TaskAnswered,
    TaskCancelled,
    TaskCreated,
    TaskEnded,
    TaskInputGiven,
    TaskQuestionsChanged,
    WatchedTasksChanged,
)
from perdure.kernel.state import (
    AtServer,
    Disabled,
    Ended,
    ForTask,
    InCall,
    Invocation,
    Link,
    Mount,
    Open,
    Orphaned,
    Stopped,
    Task,
)
from perdure.kernel.task_frames import (
    TERMINAL,
    answer_to,
    changed,
    declares_tasks,
    declaring_tasks,
    error_in,
    expiry,
    inner_id,
    new_task,
    status_of,
    text_of,
    with_handle,
    without_details,
)
from perdure.protocol import eras
from perdure.protocol.fault_messages import host_error
from perdure.protocol.faults import OUTCOME_UNKNOWN, Fault
from perdure.protocol.frames import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Members,
    Response,
    encode_members,
    encode_notification,
    encode_raw_error,
    encode_result,
    members,
)

_encode = msgspec.json.encode
_REQUIRED: Final[dict[str, Any]] = {"requiredCapabilities": {"extensions": {eras.TASKS: {}}}}


# --- begin -----------------------------------------------------------------------------------------------


def on_created(k: Context, event: TaskCreated) -> None:
    call, link = event.call, event.link
    task = _new(k, call, event.handle, AtServer(inner_id(event.task), link.generation))
    task.era = link.era
    task.created = text_of(event.task, "createdAt")
    task.expires = expiry(event.task, k.epoch + k.now)
    task.seen = with_handle(event.task, event.handle)
    k.state.tasks[task.handle] = task
    _save(k, task)
    if call.task:
        _announce(k, task)
    k.emit(WatchedTasksChanged())


def on_detached(k: Context, event: CallDetached) -> None:
    """Answer the client's request with the task; the call itself goes on."""
    call, wall = event.call, k.epoch + k.now
    task = _new(k, call, call.task, InCall(call.seq))
    task.seen = new_task(call.task, wall, k.limits.task_ttl_s)
    task.expires = wall + k.limits.task_ttl_s
    k.state.tasks[task.handle] = task
    _save(k, task)
    result = {"resultType": Raw(b'"task"'), **members(task.seen)}
    answer = eras.modern_result(call.method, encode_members(result), k.public.identity(call.mount))
    k.to_client(encode_result(call.public_id, answer))


def _new(k: Context, call: Invocation, handle: str, place: AtServer | InCall) -> Task:
    tool = k.specs[call.mount].prefix + call.name
    session = k.state.session.session_id
    return Task(handle, call.mount, tool, place, b"{}", owner=k.owner, session=session, host=k.host)


# --- requests of the client ------------------------------------------------------------------------------


def check_client(request: Incoming) -> None:
    """Methods of another revision are not there; a client of 2026 must say that it supports tasks."""
    if request.era == "modern" and request.method not in eras.MODERN_TASK_METHODS:
        raise Refusal(METHOD_NOT_FOUND, f"no method {request.method} here.", {"method": request.method})
    if request.era == "modern" and not declares_tasks(request.meta.get(eras.META_CAPABILITIES)):
        message = f"{request.method} needs the client capability {eras.TASKS}."
        raise Refusal(eras.MISSING_CAPABILITY, message, _REQUIRED)


def list_own(k: Context, request: Incoming) -> None:
    """`tasks/list` of the handshake era: what this session was told of, on one page."""
    forget_expired(k)
    own = [task for task in k.state.tasks.values() if task.era == "handshake" and k.is_own(task)]
    listed = b",".join(without_details(task) for task in own)
    reply(k, request, b'{"tasks":[' + listed + b"]}")


def answer(k: Context, request: Incoming, handle: str) -> Task | None:
    """Answer a request about a task from what is known of it. If its server must be asked, return the task."""
    task = _find(k, handle)
    mount = k.state.mounts.get(task.mount)
    is_down = mount is None or isinstance(mount.phase, Open | Stopped | Disabled)
    if is_down and isinstance(task.place, AtServer | Orphaned):
        last_fault = mount.last_fault if mount is not None else None
        _fail(k, task, last_fault or Fault("process", "unmounted", 0))
    match task.place:
        case InCall(seq) if request.method == "tasks/cancel":
            if seq in k.state.calls and k.is_own(task):
                k.emit(TaskCancelled(seq))
        case InCall(seq) if request.method == "tasks/update":
            try:
                answers = members(request.params.get("inputResponses", Raw(b"{}")))
            except ValueError:
                raise Refusal(INVALID_PARAMS, "inputResponses must be an object.") from None
            if seq in k.state.calls and k.is_own(task):
                k.emit(TaskInputGiven(seq, answers))
        case AtServer() | Orphaned():
            return task
        case _:
            pass
    if request.method == "tasks/result" and task.result is None:
        metrics.accepted(k, request.method)
        metrics.ended(k, request.method, k.now, "response_error")
        k.to_client(encode_raw_error(request.id, error_in(task)))
    else:
        reply(k, request, answer_to(task, request.method, request.era))
    return None


def _find(k: Context, handle: str) -> Task:
    forget_expired(k)
    task = k.state.tasks.get(handle)
    if task is None or task.owner != k.owner:
        message = f"no task {handle[:64]} here: its time to live is over, or it was started elsewhere."
        raise Refusal(INVALID_PARAMS, message)
    return task


# --- answers of servers ----------------------------------------------------------------------------------


def on_answered(k: Context, event: TaskAnswered) -> None:
    """A server answered what the client asked about a task."""
    task = k.state.tasks.get(event.call.name)
    if task is None or isinstance(task.place, Ended):
        return
    if event.call.method == "tasks/result" and event.response.result is not None:
        task.result = bytes(event.response.result)
        _end(k, task, changed(task, k.epoch + k.now, "completed"))
    elif event.call.method == "tasks/get" or event.response.result is None:
        _take_report(k, event.link, task, event.response)


def on_own_answer(k: Context, link: Link, handle: str, response: Response) -> None:
    """A new generation says whether it knows a task of an earlier one."""
    task = k.state.tasks.get(handle)
    if task is not None and isinstance(task.place, Orphaned):
        _take_report(k, link, task, response)


def _take_report(k: Context, link: Link, task: Task, response: Response) -> None:
    if response.result is None:
        if error_code(response.error) == INVALID_PARAMS or isinstance(task.place, Orphaned):
            _fail(k, task, Fault("process", "task_forgotten", link.generation))
        return
    try:
        report = members(response.result)
    except ValueError:
        return
    if isinstance(task.place, Orphaned) and text_of(report, "createdAt") != task.created:
        _fail(k, task, Fault("process", "task_forgotten", link.generation))  # another one under the same id
    else:
        _update(k, link, task, report)


def on_status(k: Context, link: Link, params: Members) -> None:
    """A server tells of a task unasked."""
    for task in k.tasks_at(link):
        assert isinstance(task.place, AtServer)
        if task.place.inner == inner_id(params):
            _update(k, link, task, params)
            return
    k.quarantine("unexpected_task")


def _update(k: Context, link: Link, task: Task, report: Members) -> None:
    assert isinstance(task.place, AtServer | Orphaned)
    was = task.seen
    seen = with_handle(report, task.handle)
    status = text_of(report, "status")
    # A result of the handshake era has a method of its own: until it was read, only the server has it.
    is_whole = status in TERMINAL and (task.era == "modern" or status != "completed")
    if k.is_own(task):
        task.place = AtServer(task.place.inner, link.generation)
    if is_whole and len(seen) <= k.limits.task_bytes // 16:
        _end(k, task, seen)
    else:
        task.seen = seen if len(seen) <= k.limits.task_bytes // 16 else was
        if task.seen != was:
            _save(k, task)
            _announce(k, task)


# --- a call that became a task ---------------------------------------------------------------------------


def on_call_ended(k: Context, event: DetachedCallEnded) -> None:
    task = k.state.tasks.get(event.call.task)
    if task is None or not isinstance(task.place, InCall):
        return
    wall = k.epoch + k.now
    if event.result is not None:
        _end(k, task, changed(task, wall, "completed", result=event.result))
    elif event.error is not None:
        message = members(event.error).get("message", Raw(b'""'))
        _end(k, task, changed(task, wall, "failed", statusMessage=bytes(message), error=event.error))
    else:
        _end(k, task, changed(task, wall, "cancelled"))


def on_questions_changed(k: Context, event: TaskQuestionsChanged) -> None:
    task = k.state.tasks.get(event.call.task)
    if task is None or not isinstance(task.place, InCall):
        return
    questions = server_requests.open_questions(k, event.call)
    if questions:
        asked = bytes(encode_members(questions))
        task.seen = changed(task, k.epoch + k.now, "input_required", inputRequests=asked)
    elif status_of(task) == "working":
        return
    else:
        task.seen = changed(task, k.epoch + k.now, "working")
    _save(k, task)
    _announce(k, task)


# --- loss ------------------------------------------------------------------------------------------------


def on_generation_lost(k: Context, link: Link) -> None:
    successor = k.state.mounts[link.mount].serving_link()
    for task in k.tasks_at(link):
        assert isinstance(task.place, AtServer)
        task.place = Orphaned(task.place.inner)
        _save(k, task)
        if successor is not None and successor is not link:  # the lost generation was fenced
            _ask_successor(k, successor, task)


def on_generation_serves(k: Context, link: Link) -> None:
    """Ask the new generation about what an earlier one was doing for this session."""
    for task in list(k.state.tasks.values()):
        if task.mount == link.mount and isinstance(task.place, Orphaned) and k.is_own(task):
            _ask_successor(k, link, task)


def _ask_successor(k: Context, link: Link, task: Task) -> None:
    assert isinstance(task.place, Orphaned)
    params: Members = {"taskId": Raw(_encode(task.place.inner))}
    capabilities = declaring_tasks(k.state.session.capabilities)
    send_request(k, link, "tasks/get", params, ForTask(task.handle), capabilities)


def on_mount_unavailable(k: Context, mount: Mount) -> None:
    for task in list(k.state.tasks.values()):
        if task.mount == mount.name and isinstance(task.place, Orphaned) and k.is_own(task):
            _fail(k, task, mount.last_fault or Fault("process", "unavailable", mount.generation))


def adopt(tasks: Iterable[Task], is_running: Callable[[str], bool], wall: float) -> dict[str, Task]:
    """What hosts that are gone left behind, as it stands now; a host that runs has its own tasks in hand."""
    adopted: dict[str, Task] = {}
    for task in tasks:
        if (task.expires is not None and task.expires <= wall) or is_running(task.host):
            continue
        match task.place:
            case AtServer(inner):
                task.place = Orphaned(inner)
            case InCall():
                fault = Fault("process", "host_lost", 0, "the host was ended while the call was running")
                _set_failed(task, fault, wall)
            case Orphaned() | Ended():
                pass
        adopted[task.handle] = task
    return adopted


# --- end -------------------------------------------------------------------------------------------------


def _fail(k: Context, task: Task, fault: Fault) -> None:
    """Its server is lost: the task ends failed with the outcome `unknown`."""
    _set_failed(task, fault, k.epoch + k.now)
    _after_end(k, task)


def _set_failed(task: Task, fault: Fault, wall: float) -> None:
    error = host_error(
        OUTCOME_UNKNOWN,
        fault,
        mount=task.mount,
        call=task.tool,
        attempts=1,
        outcome="unknown",
        retry="never",
    )
    message = bytes(members(error)["message"])
    task.seen = changed(task, wall, "failed", statusMessage=message, error=bytes(error))
    task.place = Ended()


def _end(k: Context, task: Task, seen: bytes) -> None:
    task.seen = seen
    task.place = Ended()
    _after_end(k, task)


def _after_end(k: Context, task: Task) -> None:
    _save(k, task)
    _announce(k, task)
    k.emit(TaskEnded(task))
    k.emit(WatchedTasksChanged())


def forget_expired(k: Context) -> None:
    """Only tasks that have ended, and that no call is about: how long one may run is for its server to decide."""
    wall = k.epoch + k.now
    expired = [
        handle
        for handle, task in k.state.tasks.items()
        if isinstance(task.place, Ended) and task.expires is not None and task.expires <= wall
    ]
    asked = (
        {call.name for call in k.state.calls.values() if call.method in eras.TASK_METHODS} if expired else ()
    )
    for handle in expired:
        if handle not in asked:
            del k.state.tasks[handle]
            k.out.append(SaveTask(handle, b""))


def _save(k: Context, task: Task) -> None:
    k.out.append(SaveTask(task.handle, msgspec.json.encode(task)))


def _announce(k: Context, task: Task) -> None:
    """Tell each stream of the client that asked for this task, and a handshake client of its own tasks."""
    if task.era == "handshake" and k.state.session.live and k.is_own(task):
        k.to_client(encode_notification("notifications/tasks/status", without_details(task)))
    for listen in k.state.session.listens:
        if task.handle in listen.tasks:
            meta = encode_members({eras.META_SUBSCRIPTION: Raw(_encode(listen.public_id))})
            params = encode_members({**members(task.seen), "_meta": meta})
            k.to_client(encode_notification("notifications/tasks", params))
