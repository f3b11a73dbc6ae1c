"""A server with one tool of which nothing is known: `work` writes its name into the ledger and answers as it is told.

The ledger is the file that its first argument names.
"""

from __future__ import annotations

import json
import sys

ledger = sys.argv[1]
for line in sys.stdin:
    head = json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < 4000 else 0)
    if "id" not in head:
        continue
    params = head.get("params") or {}
    if head["method"] == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "w", "version": "1"},
        }
    elif head["method"] == "tools/list":
        result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
    elif head["method"] == "tools/call":
        arguments = params["arguments"]
        with open(ledger, "a") as file:
            file.write(arguments["name"] + "\n")
        if arguments.get("hang"):
            continue
        result = {"content": [{"type": "text", "text": "x" * arguments.get("size", 1)}]}
    else:
        result = {}
    text = json.dumps({"jsonrpc": "2.0", "id": head["id"], "result": result})
    if head["method"] == "tools/call" and arguments.get("digits"):
        text = text[:-2] + ', "structuredContent": {"n": ' + "7" * arguments["digits"] + "}}}"
    print(text, flush=True)
