"""A server of 2026-07-28 with the tasks extension on plain JSON lines: the tools that the conformance suite calls.

Its task ids count from one in every process, so two of them collide wherever ids are not rewritten. With `--old` it is a
server of the handshake era without tasks, whose `slow_compute` takes its time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
OLD = "--old" in sys.argv
TOOLS = (
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
)
REQUIRED = {"requiredCapabilities": {"extensions": {TASKS: {}}}}

_tasks: dict[str, dict[str, Any]] = {}
_events: dict[str, threading.Event] = {}
_answers: dict[str, dict[str, Any]] = {}
_lock = threading.RLock()


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{time.time_ns() % 10**9:09d}Z"


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": words}], **more}


def change(identity: str, status: str, **details: Any) -> None:
    with _lock:
        task = _tasks[identity]
        if task["status"] in ("completed", "failed", "cancelled"):
            return
        for key in ("inputRequests", "result", "error"):
            task.pop(key, None)
        task.update(status=status, lastUpdatedAt=stamp(), **details)


def begin(work: Any) -> dict[str, Any]:
    with _lock:
        identity = str(len(_tasks) + 1)
        at = stamp()
        _tasks[identity] = {
            "taskId": identity,
            "status": "working",
            "createdAt": at,
            "lastUpdatedAt": at,
            "ttlMs": 600_000,
            "pollIntervalMs": 100,
        }
        _events[identity], _answers[identity] = threading.Event(), {}
        created = {"resultType": "task", **_tasks[identity]}
    threading.Thread(target=work, args=(identity,), daemon=True).start()
    return created


def question(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": "string"}}}
    params = {"mode": "form", "message": f"{name}?", "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def ask(identity: str, *names: str) -> None:
    """Wait until each of these was answered."""
    while missing := [name for name in names if name not in _answers[identity]]:
        change(identity, "input_required", inputRequests={name: question(name) for name in missing})
        _events[identity].wait()
        _events[identity].clear()


def call(name: str, params: dict[str, Any], *, can_task: bool) -> dict[str, Any]:
    arguments = params.get("arguments") or {}
    if name == "die":
        os._exit(9)
    if name == "greet":
        return text(f"Hello, {arguments.get('name', 'you')}!")
    if name == "slow_compute":
        seconds = float(arguments.get("seconds", 0))
        if OLD or not can_task or seconds == 0:
            time.sleep(seconds)
            return text(f"computed {arguments.get('label', '')}")

        def compute(identity: str) -> None:
            time.sleep(seconds)
            change(identity, "completed", result=text(f"computed {arguments.get('label', '')}"))

        return begin(compute)
    if not can_task:
        raise Refused(-32021, f"this tool needs the client capability {TASKS}", REQUIRED)
    if name == "failing_job":
        return begin(lambda i: change(i, "completed", result=text("it failed", isError=True)))
    if name == "protocol_error_job":
        return begin(lambda i: change(i, "failed", error={"code": -32603, "message": "it broke"}))
    if name in ("confirm_delete", "multi_input"):
        names = ("confirm",) if name == "confirm_delete" else ("first", "second")

        def confirm(identity: str) -> None:
            ask(identity, *names)
            change(identity, "working")
            change(identity, "completed", result=text("confirmed"))

        return begin(confirm)
    if name == "test_tool_with_task":
        answers = params.get("inputResponses")
        if not answers:
            required = {"user_name": question("name")}
            return {"resultType": "input_required", "inputRequests": required, "requestState": "s"}
        who = json.dumps(answers)
        return begin(lambda i: change(i, "completed", result=text(f"for {who}")))
    raise Refused(-32602, f"no tool {name}")


def about_task(method: str, params: dict[str, Any], *, can_task: bool) -> dict[str, Any]:
    if not can_task:
        raise Refused(-32021, f"missing client capability {TASKS}", REQUIRED)
    identity = params.get("taskId")
    with _lock:
        if identity not in _tasks:
            raise Refused(-32602, "no such task")
        if method == "tasks/get":
            return {"resultType": "complete", **_tasks[identity]}
        if method == "tasks/cancel":
            change(identity, "cancelled")
        else:
            asked = _tasks[identity].get("inputRequests", {})
            answers = {k: v for k, v in (params.get("inputResponses") or {}).items() if k in asked}
            _answers[identity].update(answers)
            for key in answers:
                asked.pop(key)
            if answers and not asked:
                change(identity, "working")
            _events[identity].set()
        return {"resultType": "complete"}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    declared = params.get("_meta", {}).get(CAPABILITIES, {})
    can_task = TASKS in declared.get("extensions", {})
    info = {"name": "tasks", "version": "1"}
    if method == "initialize" and OLD:
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "server/discover" and not OLD:
        capabilities = {"tools": {}, "extensions": {TASKS: {}}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "public"}
    if method == "tools/call":
        return call(params.get("name", ""), params, can_task=can_task)
    if method in ("tasks/get", "tasks/update", "tasks/cancel") and not OLD:
        return about_task(method, params, can_task=can_task)
    if method == "ping" and OLD:
        return {}
    raise Refused(-32601, f"no method {method}")


def serve_one(message: dict[str, Any]) -> None:
    try:
        result = answer(message["method"], message.get("params") or {})
    except Refused as refused:
        send({"id": message["id"], "error": refused.error})
    else:
        send({"id": message["id"], "result": result})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "subscriptions/listen":
            meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
            params = {"notifications": {}, "_meta": meta}
            send({"method": "notifications/subscriptions/acknowledged", "params": params})
        elif message["method"] == "tools/call":
            threading.Thread(target=serve_one, args=(message,), daemon=True).start()
        else:
            serve_one(message)


if __name__ == "__main__":
    main()
