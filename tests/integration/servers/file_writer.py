"""A stdio MCP server whose tools write files into its working directory.

`write_file` writes and answers, `crash` writes and ends, `peek` writes although it says that it only reads, `linger` writes
and answers once there is a file `go`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

VERSION = "2025-06-18"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
TOOLS = [
    {"name": "write_file", "inputSchema": SCHEMA},
    {"name": "crash", "inputSchema": SCHEMA},
    {"name": "linger", "inputSchema": SCHEMA},
    {"name": "peek", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "writer", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        arguments = params["arguments"]
        with open(arguments["path"], "w") as file:
            file.write(arguments["content"])
        if params["name"] == "crash":
            os._exit(1)
        while params["name"] == "linger" and not os.path.exists("go"):
            time.sleep(0.01)
        return {"content": [{"type": "text", "text": "written"}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
