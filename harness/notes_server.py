"""A small MCP server over stdio for the pictures of the dashboard: notes that can be added and searched.

A note that says `crash` ends the process with SIGKILL before it is answered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any, Final

TEXT: Final = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS: Final = [
    {"name": "add", "description": "Add a note.", "inputSchema": TEXT},
    {
        "name": "search",
        "description": "Find notes that contain a text.",
        "inputSchema": TEXT,
        "annotations": {"readOnlyHint": True},
    },
]


def result_of(method: str, params: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    match method:
        case "initialize":
            info = {"name": "notes", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            text = params["arguments"]["text"]
            if text == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            if params["name"] == "add":
                notes.append(text)
            found = [note for note in notes if text in note]
            return {"content": [{"type": "text", "text": "\n".join(found) or "none"}]}
        case _:
            return {}


def main() -> None:
    notes: list[str] = []
    print("notes: ready", file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = result_of(request["method"], request.get("params", {}), notes)
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
