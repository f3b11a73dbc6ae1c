"""A stdio MCP server of the standard library alone: what a host adds to it is what the host costs.

    python echo.py [MARKS]

Three tools, all read-only: `echo` answers at once, `work` takes 2 ms in a thread, and `hold` answers only on
its second attempt. `hold` leaves a file in MARKS that names its process, so the caller knows that the call is
in flight and whom to kill; a successor finds the file and answers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
WORK_SECONDS = 0.002
HOLD_SECONDS = 60.0


def tool(name: str, description: str, *arguments: str) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {argument: {"type": "string"} for argument in arguments},
            "required": list(arguments),
        },
        "annotations": {"readOnlyHint": True},
    }


TOOLS = [
    tool("echo", "Answer with the text it was given.", "text"),
    tool("work", "Take two milliseconds in a thread."),
    tool("hold", "Answer on the second attempt only.", "key"),
]

_out = threading.Lock()
_threads = ThreadPoolExecutor(max_workers=16)


def send(frame: dict[str, Any]) -> None:
    data = json.dumps(frame, separators=(",", ":")).encode() + b"\n"
    with _out:
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]


def answer(request: Any, result: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": request, "result": result})


def text(request: Any, content: str) -> None:
    answer(request, {"content": [{"type": "text", "text": content}]})


def refuse(request: Any, code: int, message: str) -> None:
    send({"jsonrpc": "2.0", "id": request, "error": {"code": code, "message": message}})


def work(request: Any) -> None:
    time.sleep(WORK_SECONDS)
    text(request, "done")


def hold(request: Any, mark: Path) -> None:
    try:
        descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        text(request, str(os.getpid()))
        return
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)
    time.sleep(HOLD_SECONDS)
    text(request, str(os.getpid()))


def call(request: Any, params: dict[str, Any], marks: Path) -> None:
    arguments = params.get("arguments") or {}
    match params.get("name"):
        case "echo":
            text(request, arguments["text"])
        case "work":
            _threads.submit(work, request)
        case "hold":
            _threads.submit(hold, request, marks / arguments["key"])
        case name:
            refuse(request, -32602, f"no tool {name}")


def serve(marks: Path) -> None:
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if "id" not in frame or "method" not in frame:
            continue
        request, params = frame["id"], frame.get("params") or {}
        match frame["method"]:
            case "initialize":
                wanted = params.get("protocolVersion")
                answer(
                    request,
                    {
                        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "bench-echo", "version": "1"},
                    },
                )
            case "tools/list":
                answer(request, {"tools": TOOLS})
            case "tools/call":
                call(request, params, marks)
            case "ping":
                answer(request, {})
            case method:
                refuse(request, -32601, f"no method {method}")


if __name__ == "__main__":
    serve(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    # A thread still holding a call must not keep the process after its client has gone.
    os._exit(0)
