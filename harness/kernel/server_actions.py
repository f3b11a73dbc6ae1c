"""What the servers of a world do and say: honest work, honest probes, and everything a pipe can carry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from harness.kernel.client_actions import NOBODY
from harness.kernel.scopes import FIND, TASK_TTL_S, WORKER, catalog, uri_of
from harness.kernel.world import Child, Pending, ServerTask, World
from perdure.kernel.events import ChildBacklog, ChildFrame, ChildLost, ChildNoise, ChildStarted, Event
from perdure.protocol import eras
from perdure.protocol.faults import Fault

_encode = msgspec.json.encode
_SERVER: dict[str, Any] = {"tools": {"listChanged": True}}
_RICH_SERVER: dict[str, Any] = {**_SERVER, "resources": {"subscribe": True}, "logging": {}}
PROBES = ("perdure/probe", FIND)


def is_call(request: Pending) -> bool:
    return bool(request.tag) and request.method not in PROBES


def _frame(child: Child, message: dict[str, Any]) -> Event:
    return ChildFrame(child.mount, child.generation, _encode({"jsonrpc": "2.0", **message}))


def child_events(world: World, verb: str, child: Child, index: int) -> Iterator[Event]:
    if verb == "die":
        child.is_gone = True
        yield ChildLost(child.mount, child.generation, Fault("process", "exited", child.generation))
    elif verb in ("up", "serve", "come") and not child.is_up:
        child.is_up = True
        yield ChildStarted(child.mount, child.generation, 4000 + child.generation)
    elif not child.is_up:
        return
    if verb in ("open", "fail", "shrug", "serve", "come"):
        while not child.is_gone and (own := _own_requests(child, verb)):
            child.pending.remove(own[0])
            yield _frame(child, _own_answer(world, child, own[0], verb=verb))
            if verb not in ("serve", "come"):
                return
    elif verb not in ("die", "up"):
        yield from _speak(world, verb, child, index)


def _own_requests(child: Child, verb: str) -> list[Pending]:
    """What the host itself asks; a server that has only just come has not looked at probes and at tasks yet."""
    own = [request for request in child.pending if not is_call(request)]
    later = {*PROBES, *eras.TASK_METHODS}
    return [request for request in own if verb != "come" or request.method not in later]


def _own_answer(world: World, child: Child, request: Pending, *, verb: str) -> dict[str, Any]:
    """A server's answer to what the host itself asks: its handshake, its lists, a ping, a probe."""
    if request.method in eras.TASK_METHODS:
        child.is_productive = child.is_productive or bool(request.tool)
    if verb == "fail":
        return {"id": request.id, "error": {"code": -32603, "message": "no"}}
    info = {"name": child.mount, "version": str(child.catalog)}
    capabilities = _RICH_SERVER if child.is_rich else _SERVER
    if child.has_tasks:
        capabilities = {**capabilities, "extensions": {eras.TASKS: {}}}
    match request.method:
        case "initialize" if child.era == "modern":
            return {"id": request.id, "error": {"code": eras.UNSUPPORTED_VERSION, "message": "2026 only"}}
        case "initialize":
            opened = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            return {"id": request.id, "result": opened}
        case "server/discover" if child.era == "handshake":
            return {"id": request.id, "error": {"code": -32601, "message": "no such method"}}
        case "server/discover":
            return {
                "id": request.id,
                "result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities},
            }
        case "tools/list":
            return {"id": request.id, "result": msgspec.Raw(catalog(child.mount, child.catalog))}
        case "resources/list":
            resource = {"uri": uri_of(child.mount), "name": "a"}
            return {"id": request.id, "result": {"resources": [resource]}}
        case "resources/templates/list":
            template = {"uriTemplate": f"{child.mount}://doc/{{tag}}", "name": "doc"}
            return {"id": request.id, "result": {"resourceTemplates": [template]}}
        case "tasks/get" | "tasks/update" | "tasks/cancel":
            return {"id": request.id, **_task_answer(world, child, request)}
        case "perdure/probe" | "find":
            return {"id": request.id, "result": _probe_answer(world, child, request, knows=verb != "shrug")}
    return {"id": request.id, "result": {}}


def report_of(task: ServerTask) -> dict[str, Any]:
    report: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status,
        "statusMessage": task.tag,
        "createdAt": task.created,
        "ttlMs": TASK_TTL_S * 1000,
    }
    if task.status == "completed":
        report["result"] = {"content": [{"type": "text", "text": task.tag}]}
    return report


def _task_answer(world: World, child: Child, request: Pending) -> dict[str, Any]:
    task = next((task for task in world.tasks_of(child) if task.id == request.uri), None)
    if task is None:
        return {"error": {"code": -32602, "message": "no such task"}}
    if request.method == "tasks/cancel" and task.status == "working":
        task.status = "cancelled"
    return {
        "result": {"resultType": "complete", **(report_of(task) if request.method == "tasks/get" else {})}
    }


def _new_task(world: World, child: Child, tag: str) -> ServerTask:
    """Ids count from one in each process, or on the disk of a server that keeps its tasks."""
    known = world.tasks_of(child)
    world.asked += 1
    task = ServerTask(child.mount, child.generation, str(len(known) + 1), tag, f"made {world.asked}")
    world.server_tasks.append(task)
    return task


def _probe_answer(world: World, child: Child, request: Pending, *, knows: bool) -> dict[str, Any]:
    """The truth, from the disk. The worker also knows what it is still running; a mounted server may not."""
    want = world.by_tag(request.tag)
    done = knows and world.executed.get(request.tag, 0) > 0
    is_running = any(p.tag == request.tag and is_call(p) for p in child.pending)
    is_unsure = not knows or (is_running and child.mount == WORKER)
    status = "done" if done else "unknown" if is_unsure else "absent"
    if want is not None:
        want.absent, want.done = status == "absent", status == "done"
    said: dict[str, Any] = {"status": status}
    if done:
        said["result"] = {"content": [{"type": "text", "text": request.tag}]}
    return said if child.mount == WORKER else {"content": [], "structuredContent": said}


def _speak(world: World, verb: str, child: Child, index: int) -> Iterator[Event]:
    calls = [p for p in child.pending if is_call(p)]
    request = calls[index] if calls and index < len(calls) else None
    match verb:
        case "answer" if request is not None:
            world.execute(child, request, is_builtin=child.mount == WORKER)
            result: dict[str, Any] = {"content": [{"type": "text", "text": request.tag}]}
            if child.era == "modern":
                result["resultType"] = "complete"
            yield _answer(world, child, request, {"result": result})
        case "error" if request is not None:
            yield _answer(world, child, request, {"error": {"code": -32050, "message": request.tag}})
        case "need" if request is not None and child.era == "modern" and not request.has_run:
            world.asked += 1
            marker = f"{child.mount}.{child.generation}.{world.asked}"
            question = {"method": "elicitation/create", "params": {"q": marker}}
            result = {"resultType": "input_required", "inputRequests": {"x": question}, "requestState": "s"}
            yield _answer(world, child, request, {"result": result})
        case "task" if request is not None and child.has_tasks and not request.has_run:
            task = _new_task(world, child, request.tag)
            yield _answer(world, child, request, {"result": {"resultType": "task", **report_of(task)}})
        case "finish" | "tell" if index < len(known := world.tasks_of(child)):
            if verb == "tell":
                yield _frame(child, {"method": "notifications/tasks", "params": report_of(known[index])})
            elif known[index].status == "working":
                known[index].status = "completed"
                world.executed[known[index].tag] = world.executed.get(known[index].tag, 0) + 1
        case "garble" if request is not None:
            child.pending.remove(request)
            world.execute(child, request, is_builtin=child.mount == WORKER)
            frame = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % request.id
            yield ChildFrame(child.mount, child.generation, frame)
        case "work" if request is not None:
            world.execute(child, request, is_builtin=child.mount == WORKER)
        case "progress" if request is not None and request.token is not None:
            world.asked += 1
            value = world.asked if world.asked % 2 else 1  # now and then it falls back
            params = {"progressToken": request.token, "progress": value}
            yield _frame(child, {"method": "notifications/progress", "params": params})
        case "again" if child.last_answer:
            yield ChildFrame(child.mount, child.generation, child.last_answer)
        case "stray":
            others = [p.id for c in world.children if c is not child for p in c.pending]
            yield _frame(child, {"id": others[0] if others else NOBODY, "result": {"content": []}})
        case "ask" if child.era == "handshake":
            world.asked += 1
            child.asks.append(world.asked)
            marker = f"{child.mount}.{child.generation}.{world.asked}"
            method = "sampling/createMessage" if world.asked % 2 else "elicitation/create"
            if child.is_rich and world.asked % 3:
                method = "roots/list"
                world.roots_questions.append(marker)
            yield _frame(child, {"id": world.asked, "method": method, "params": {"q": marker}})
        case "unask" if child.asks:
            identity = child.asks.pop()
            marker = f"{child.mount}.{child.generation}.{identity}"
            yield _frame(child, {"method": "notifications/cancelled", "params": {"requestId": identity}})
        case "change":
            world.catalogs[child.mount] = child.catalog = world.catalogs.get(child.mount, 1) + 1
            yield _frame(child, {"method": "notifications/tools/list_changed"})
        case "update":
            yield _frame(
                child, {"method": "notifications/resources/updated", "params": {"uri": uri_of(child.mount)}}
            )
        case "log":
            message = {"level": "info", "data": f"{child.mount}.{child.generation}"}
            yield _frame(child, {"method": "notifications/message", "params": message})
        case "noise":
            yield ChildNoise(child.mount, child.generation, 3)
        case "full" | "drain":
            child.is_full = verb == "full"
            yield ChildBacklog(child.mount, child.generation, 101 if child.is_full else 0)


def _answer(world: World, child: Child, request: Pending, body: dict[str, Any]) -> Event:
    child.pending.remove(request)
    want = world.by_tag(request.tag)
    if want is not None and want.sends and want.sends[-1].child_id == request.id and not want.in_doubt:
        child.is_productive = True
    event = _frame(child, {"id": request.id, **body})
    assert isinstance(event, ChildFrame)
    child.last_answer = event.frame
    return event
