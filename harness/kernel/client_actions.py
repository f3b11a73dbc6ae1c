"""What the client of a world sends: requests under ids of its own, answers to questions, and nonsense."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.kernel.scopes import Scope, tool, uri_of
from harness.kernel.world import ClientTask, Question, Want, World
from perdure.kernel.events import ClientFrame, ClientOversize, Event
from perdure.protocol import eras
from perdure.protocol.replay import READ_METHODS

_encode = msgspec.json.encode
_CLIENT: dict[str, Any] = {"sampling": {}, "elicitation": {}, "roots": {}, "extensions": {eras.TASKS: {}}}
_ENVELOPE = {eras.META_VERSION: eras.LATEST_MODERN, eras.META_CAPABILITIES: _CLIENT}
TAG: Final = "explorer/tag"
"""The member of `_meta` that says which call a request is where its arguments do not."""
NOBODY: Final = 10**9  # an id that nobody ever gave


def _want(world: World, scope: Scope, kind: str, **facts: Any) -> Want:
    """A new request under an id whose number comes twice: once as an integer, once as a string."""
    world.order += 1
    number = (world.order + 1) // 2
    identity: int | str = number if world.order % 2 else str(number)
    want = Want(identity, kind, scope.client == "modern", world.order, world.now, **facts)
    world.is_live = world.is_live or (world.is_initialized and kind in ("call", "list", "health", "level"))
    world.wants[identity] = want
    return want


def _request(want: Want, method: str, params: dict[str, Any] | None = None) -> Event:
    body: dict[str, Any] = dict(params or {})
    meta: dict[str, Any] = dict(_ENVELOPE) if want.modern else {}
    if want.token is not None:
        meta["progressToken"] = want.token
    if want.tag and method != "tools/call":
        meta[TAG] = want.tag
    if meta:
        body["_meta"] = meta
    frame: dict[str, Any] = {"jsonrpc": "2.0", "id": want.id, "method": method}
    if body:
        frame["params"] = body
    return ClientFrame(_encode(frame))


def _note(method: str, params: dict[str, Any] | None = None) -> Event:
    frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        frame["params"] = params
    return ClientFrame(_encode(frame))


def client_event(world: World, scope: Scope, verb: str, rest: list[str]) -> Event | None:
    calls = [w for w in world.wants.values() if w.kind == "call"]
    match verb:
        case "init" if not world.is_initialized:
            world.is_initialized = True
            info = {"name": "explorer", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": _CLIENT, "clientInfo": info}
            return _request(_want(world, scope, "initialize"), "initialize", params)
        case "initialized" if world.is_initialized:
            world.is_live = True
            return _note("notifications/initialized")
        case "discover":
            return _request(_want(world, scope, "discover"), "server/discover")
        case "ping" | "list" | "health":
            want = _want(world, scope, verb)
            name = {"ping": "ping", "list": "tools/list", "health": "tools/call"}[verb]
            return _request(want, name, {"name": "health"} if verb == "health" else None)
        case "restart" | "disable" | "enable":
            arguments = {"action": verb, "name": rest[0]}
            return _request(
                _want(world, scope, "health"), "tools/call", {"name": "mounts", "arguments": arguments}
            )
        case "call":
            return _call(world, scope, rest[0], rest[1])
        case "dup" if calls:
            frame = {"jsonrpc": "2.0", "id": calls[0].id, "method": "ping"}
            return ClientFrame(_encode(frame))
        case "cancel" if calls:
            want = calls[int(rest[0])] if int(rest[0]) < len(calls) else calls[0]
            del world.wants[want.id]
            if want.tool == "resources/unsubscribe":
                world.in_doubt.append(want.uri)
            return _note("notifications/cancelled", {"requestId": want.id})
        case "listen":
            wanted: dict[str, Any] = {"toolsListChanged": True}
            uri = uri_of(scope.mounts[-1]) if scope.rich else ""
            if uri:
                wanted["resourceSubscriptions"] = [uri]
            if world.tasks:
                wanted["taskIds"] = list(world.tasks)
            want = _want(world, scope, "listen", uri=uri, watched=list(world.tasks))
            return _request(want, "subscriptions/listen", {"notifications": wanted})
        case "read":
            tag = f"convergent-{world.order + 1}"
            return _resource(world, scope, "resources/read", rest[0], f"{rest[0]}://doc/{tag}")
        case "subscribe" | "unsubscribe":
            return _resource(world, scope, f"resources/{verb}", rest[0], uri_of(rest[0]))
        case "level":
            level = "debug" if world.level != "debug" else "error"
            return _request(_want(world, scope, "level", uri=level), "logging/setLevel", {"level": level})
        case "get" | "input" | "stop" if world.tasks:
            return _about_task(world, scope, verb, list(world.tasks.values()), int(rest[0]))
        case "roots":
            world.roots = ""
            return _note("notifications/roots/list_changed")
        case "unlisten":
            open_streams = [w for w in world.wants.values() if w.kind == "listen"]
            if open_streams:
                del world.wants[open_streams[0].id]
                return _note("notifications/cancelled", {"requestId": open_streams[0].id})
        case "bad":
            want = _want(world, scope, "broken")
            return ClientFrame(b'{"jsonrpc":"2.0","id":' + _encode(want.id) + b',"method":7}')
        case "big":
            want = _want(world, scope, "broken")
            head = b'{"jsonrpc":"2.0","id":' + _encode(want.id) + b',"method":"tools/call","params":{"x":"'
            return ClientOversize(1 << 30, head, b'"}}')
        case "reply" | "refuse" if world.questions:
            asked = list(world.questions.values())
            return _reply(world, verb, asked[int(rest[0])] if int(rest[0]) < len(asked) else asked[0])
        case "stray-reply":
            return ClientFrame(_encode({"jsonrpc": "2.0", "id": NOBODY, "result": {}}))
        case "retry" if world.parked:
            return _retry(world, scope, world.parked.pop(0))
    return None


def _call(world: World, scope: Scope, name: str, key: str) -> Event:
    known = tool(name)
    tag = f"{known.replay}-{world.order + 1}"
    want = _want(
        world, scope, "call", mount=known.mount, tool=name, replay=known.replay, tag=tag,
        key=key if known.keyed else "", token=1000 + world.order if world.order % 2 == 0 else None,
    )  # fmt: skip
    return _request(want, "tools/call", _call_params(scope, want))


def _resource(world: World, scope: Scope, method: str, mount: str, uri: str) -> Event:
    replay = "convergent" if method in READ_METHODS else "never"
    tag = f"{replay}-{world.order + 1}"
    want = _want(world, scope, "call", mount=mount, tool=method, replay=replay, tag=tag, uri=uri)
    return _request(want, method, {"uri": uri})


def _about_task(world: World, scope: Scope, verb: str, tasks: list[ClientTask], index: int) -> Event:
    task = tasks[index] if index < len(tasks) else tasks[0]
    method = {"get": "tasks/get", "input": "tasks/update", "stop": "tasks/cancel"}[verb]
    params: dict[str, Any] = {"taskId": task.handle}
    if verb == "input":
        params["inputResponses"] = {key: {"a": marker} for key, marker in task.inputs.items()}
        task.inputs = {}
    task.is_stopped = task.is_stopped or verb == "stop"
    want = _want(world, scope, "task", mount=task.mount, tool=method, tag=task.handle)
    return _request(want, method, params)


def _call_params(scope: Scope, want: Want) -> dict[str, Any]:
    if want.uri:
        return {"uri": want.uri}
    arguments = {"tag": want.tag, **({"path": want.key} if want.key else {})}
    return {"name": scope.spec(want.mount).prefix + want.tool, "arguments": arguments}


def _reply(world: World, verb: str, question: Question) -> Event:
    del world.questions[question.id]
    frame: dict[str, Any] = {"jsonrpc": "2.0", "id": question.id}
    if verb == "reply":
        frame["result"] = {"a": question.marker}
        if question.marker in world.roots_questions:
            world.roots = question.marker
    else:
        frame["error"] = {"code": -1, "message": question.marker}
    return ClientFrame(_encode(frame))


def _retry(world: World, scope: Scope, parked: Want) -> Event:
    """The client comes back to a call that asked for input: same call, new id, with the answers."""
    fresh = _want(world, scope, "call")
    parked.id, parked.token, parked.progress = fresh.id, None, -1.0
    world.wants[fresh.id] = parked
    answers = dict(entry.split("=") for entry in parked.input_keys)
    params = {
        **_call_params(scope, parked),
        "inputResponses": {key: {"a": marker} for key, marker in answers.items()},
        "requestState": parked.ticket,
    }
    parked.ticket, parked.input_keys = "", []
    for marker in answers.values():
        if marker in world.roots_questions:
            world.roots = marker
    return _request(parked, parked.tool if parked.uri else "tools/call", params)
