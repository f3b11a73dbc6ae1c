"""Files written the way most programs do it: look first, then write. What a race is proven real with.

    python -m harness.races.naive_writer WORKSPACE

Serves `safe_write` and `edit` over MCP on stdio, just far enough for `harness.races.write_racers`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def call(workspace: Path, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    path = workspace / arguments["path"]
    found = path.read_text() if path.exists() else None
    if tool == "edit":
        content = found or ""
        for one in arguments["edits"]:
            content = content.replace(one["old"], one["new"])
    else:
        mode = arguments.get("mode", "create")
        expected = arguments.get("expected_prev_sha256")
        if mode == "create" and found is not None:
            return {"ok": False, "error": "stale_precondition"}
        if expected is not None and expected != hashlib.sha256((found or "").encode()).hexdigest():
            return {"ok": False, "error": "stale_precondition"}
        content = (found or "" if mode == "append" else "") + arguments["content"]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(content)
    beside.replace(path)
    return {"ok": True}


def main(workspace: Path) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "initialize":
            result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        else:
            told = call(workspace, request["params"]["name"], request["params"]["arguments"])
            result = {"structuredContent": told, "isError": not told["ok"], "content": []}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
