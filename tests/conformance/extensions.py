"""The suite's scenarios of the extensions through Perdure: with one server, and with two behind `perdure run`.

The suite calls tools by names of its own. For two servers a small proxy puts the prefix of one of them before each, in
turn, so that both make tasks, and both number them from one.
"""

from __future__ import annotations

import http.client
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

from suite import CLIENT_REVISION, Verdict, Verdicts, _verdict

from perdure.testing.http_client import ServeProcess

SERVERS = Path(__file__).parents[1] / "integration" / "servers"
TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)

Stand = Callable[[Path, str], AbstractContextManager[str]]


def judge(started: Sequence[str], url: str, scenarios: Sequence[str], folder: Path) -> Verdicts:
    def run(scenario: str) -> Verdict:
        asked = [*started, "server", "--url", url, "--scenario", scenario, "--spec-version", CLIENT_REVISION]
        output = folder / scenario
        done = subprocess.run(
            [*asked, "--force", "--timeout", "60000", "-o", str(output)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        checks = [check for path in output.rglob("checks.json") for check in json.loads(path.read_text())]
        if not checks:
            return Verdict(
                frozenset(), frozenset({f"it did not run: {done.stdout[-500:]}{done.stderr[-500:]}"})
            )
        return _verdict(checks)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(scenarios, pool.map(run, scenarios), strict=True))


@contextmanager
def wrapped(root: Path, server: str) -> Iterator[str]:
    served = ServeProcess(root, "--wrap", shlex.join((sys.executable, str(SERVERS / server))))
    try:
        yield f"http://127.0.0.1:{served.port}/mcp"
    finally:
        served.stop()


@contextmanager
def two_mounts(root: Path, server: str) -> Iterator[str]:
    """`perdure run` with the server mounted twice, on HTTP by `perdure serve --wrap`, behind the proxy."""
    command = shlex.join((sys.executable, str(SERVERS / server)))
    run = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(root)]
    served = ServeProcess(
        root, "--wrap", shlex.join([*run, "--mount", f"a={command}", "--mount", f"b={command}"])
    )
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), _handler(served.port))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}/mcp"
    finally:
        proxy.shutdown()
        served.stop()


def _handler(port: int) -> type[BaseHTTPRequestHandler]:
    turns = count()

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "content-length")}
            message = json.loads(body)
            params = message.get("params") or {}
            if message.get("method") == "tools/call":
                name = params["name"]
                rounds = name == "test_tool_with_task"  # both rounds of it belong to one server
                params["name"] = ("a__" if rounds or next(turns) % 2 else "b__") + name
                headers = {k: params["name"] if v == name else v for k, v in headers.items()}
                body = json.dumps(message).encode()
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
            upstream.request("POST", self.path, body, headers)
            answer = upstream.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(key, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            upstream.close()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Proxy
