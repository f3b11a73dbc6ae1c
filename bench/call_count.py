"""How far one call travels in the worker: Python calls and modules of `safe_write`, `undo` and `set_state`.

Run in a process of its own (`python -m bench.call_count WORKSPACE`): it counts with a profiler in every thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from bench.report import Report

CALLS_LIMIT = 200
MODULES_LIMIT = 30
LIMITED = ("safe_write", "set_state")


def measure(scratch: Path, report: Report) -> None:
    (scratch / "workspace").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "bench.call_count", str(scratch / "workspace")],
        env={**os.environ, "PERDURE_HOME": str(scratch / "home")},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    report.title("Python calls in the worker, from the frame read to the frame written, all threads")
    for tool, (calls, modules) in json.loads(done.stdout).items():
        if tool in LIMITED:
            report.at_most(f"calls of {tool}", f"{calls}, limit {CALLS_LIMIT}", calls, CALLS_LIMIT)
            report.at_most(f"modules of {tool}", f"{modules}, limit {MODULES_LIMIT}", modules, MODULES_LIMIT)
        else:
            report.figure(tool, f"{calls} calls, {modules} modules")


class Counter:
    """Counts the Python calls of all threads while it `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls = 0
        self.modules: set[str] = set()

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        if self.is_on and event == "call":
            self.calls += 1
            if f"{os.sep}perdure{os.sep}" in frame.f_code.co_filename:
                self.modules.add(frame.f_code.co_filename)


def main() -> None:
    from perdure.worker.compose import Settings, surfaces
    from perdure.worker.pipe import FrameWriter
    from perdure.worker.server import Server
    from perdure.worker.tool_table import ToolTable

    counter = Counter()
    threading.setprofile(counter.profile)
    answers, sink = os.pipe()
    settings = Settings(workspaces=(sys.argv[1],), state=os.path.join(sys.argv[1], "..", "state.db"))
    server = Server(
        ToolTable(surfaces(settings), (), "full"), iter(()), FrameWriter(sink), roots=settings.workspaces
    )

    def use(number: int, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        frame = json.dumps(request, separators=(",", ":")).encode()
        counter.calls, counter.is_on = 0, True
        counter.modules.clear()
        server._frame(frame)
        answer = os.read(answers, 1 << 16)
        counter.is_on = False
        if b'"isError":false' not in answer:
            raise SystemExit(f"{tool} was refused: {answer.decode()}")

    for number in range(5):  # imports and caches are those of the first calls
        use(number, "safe_write", path="a.txt", content=f"{number}\n", mode="overwrite")
        use(number, "set_state", key="k", value=str(number))
    use(5, "undo")
    sys.setprofile(counter.profile)
    counts = {}
    for tool, arguments in (
        ("safe_write", {"path": "a.txt", "content": "a line\n" * 140, "mode": "overwrite"}),
        ("undo", {}),
        ("set_state", {"key": "k", "value": "9"}),
    ):
        use(10, tool, **arguments)
        counts[tool] = (counter.calls, len(counter.modules))
    sys.setprofile(None)
    print(json.dumps(counts), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
