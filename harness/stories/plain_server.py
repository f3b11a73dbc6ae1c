"""A file server as they commonly are: it reads, writes and edits files, and that is all.

    python -m harness.stories.plain_server FOLDER [--die-after BYTES]

Its tools are named as those of the reference file server. With `--die-after` it is killed once so many bytes of
content were written, in the middle of a file if it comes to that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

STEP: Final = 4096
_TEXT: Final = {"type": "string"}
TOOLS: Final = {
    "write_file": {"path": _TEXT, "content": _TEXT},
    "edit_file": {"path": _TEXT, "edits": {"type": "array"}},
    "read_text_file": {"path": _TEXT},
}


class Files:
    def __init__(self, folder: Path, die_after: int | None) -> None:
        self._folder = folder
        self._left = die_after

    def write_file(self, path: str, content: str) -> str:
        with open(self._folder / path, "wb") as file:
            data = content.encode()
            for at in range(0, len(data), STEP):
                self._spend(len(data[at : at + STEP]))
                file.write(data[at : at + STEP])
                file.flush()
        return "written"

    def edit_file(self, path: str, edits: list[dict[str, str]]) -> str:
        text = (self._folder / path).read_text()
        for edit in edits:
            if edit["oldText"] not in text:
                raise ValueError(f"Could not find exact match for edit:\n{edit['oldText']}")
            text = text.replace(edit["oldText"], edit["newText"], 1)
        return self.write_file(path, text)

    def read_text_file(self, path: str) -> str:
        return (self._folder / path).read_text()

    def _spend(self, size: int) -> None:
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def answer(files: Files, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "plain", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        schemas = {name: {"type": "object", "properties": properties} for name, properties in TOOLS.items()}
        return {"tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}
    if method != "tools/call" or params["name"] not in TOOLS:
        raise KeyError(method)
    try:
        text = getattr(files, params["name"])(**params["arguments"])
    except (OSError, ValueError, TypeError) as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {"content": [{"type": "text", "text": text}]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die-after", type=int)
    options = parser.parse_args()
    files = Files(options.folder, options.die_after)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(files, request["method"], request.get("params", {}))
        except KeyError as error:
            reply["error"] = {"code": -32601, "message": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
