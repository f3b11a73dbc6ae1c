"""How long calls of other sessions wait while one server behind `perdure serve` misbehaves.

    python -m harness.host.serve_isolation [--seconds 3] [--sessions 8] [--only pings,noise]

All sessions use both servers, so what the bad one says concerns each of them. One session makes the bad server
misbehave; another calls the good one, over and over, and its waits are what is printed. No wait may be longer than
a second.
"""

from __future__ import annotations

import argparse
import http.client
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.testing import fake_server
from perdure.testing.http_client import HttpClient, ServeProcess

LIMIT_S = 1.0
FAKE = shlex.join([sys.executable, "-P", fake_server.__file__])
CRASHING = shlex.join([sys.executable, "-P", "-S", "-c", "raise SystemExit(1)"])
FLOODING_CRASH = shlex.join([sys.executable, "-P", "-S", "-c", "print('x\\n' * 200_000)"])

Misbehave = Callable[[HttpClient, float], None]


def flood(kind: str, line_bytes: int = 0) -> Misbehave:
    def begin(client: HttpClient, seconds: float) -> None:
        client.call("bad__flood", {"kind": kind, "seconds": seconds, "line_bytes": line_bytes})

    return begin


def hang(client: HttpClient, seconds: float) -> None:
    client.call("bad__slow", {"ms": seconds * 1000})


def wedge(client: HttpClient, seconds: float) -> None:
    client.call("bad__wedge", {"ms": seconds * 1000})


def stop_reading(client: HttpClient, seconds: float) -> None:
    client.call("bad__stop_reading", {"ms": seconds * 1000})
    for _ in range(20):
        client.call("bad__echo", {"text": "x" * 100_000})


def die(client: HttpClient, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.call("bad__die", {"signal": "SIGKILL"})


def nothing(client: HttpClient, seconds: float) -> None:
    pass


CASES: dict[str, tuple[str, Misbehave]] = {
    "none": (FAKE, nothing),
    "noise": (FAKE, flood("noise")),
    "notifications": (FAKE, flood("unknown_notifications")),
    "big notifications": (FAKE, flood("unknown_notifications", 10_000)),
    "pings": (FAKE, flood("pings")),
    "list_changed": (FAKE, flood("list_changed")),
    "late answers": (FAKE, flood("late_answers")),
    "log messages": (FAKE, flood("notifications")),
    "junk": (FAKE, flood("junk_json", 100)),
    "hang": (FAKE, hang),
    "wedge": (FAKE, wedge),
    "stop reading": (FAKE, stop_reading),
    "killed again and again": (FAKE, die),
    "crash loop": (CRASHING, nothing),
    "crash loop with a flood": (FLOODING_CRASH, nothing),
}


class Caller:
    """One session on one connection that is kept: what is measured is the server."""

    def __init__(self, client: HttpClient) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
        self._headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Mcp-Session-Id": client.session or "",
        }
        self._last = 1000

    def wait(self) -> float:
        """The seconds of one call."""
        self._last += 1
        params = {"name": "good__echo", "arguments": {"text": "x"}}
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": self._last, "method": "tools/call", "params": params}
        )
        began = time.perf_counter()
        self._connection.request("POST", "/mcp", body, self._headers)
        answer: Any = self._connection.getresponse().read()
        waited = time.perf_counter() - began
        assert b'"result"' in answer, answer[:300]
        return waited


def measure(name: str, seconds: float, sessions: int) -> list[float]:
    """The waits of the calls that were made during the misbehaviour."""
    command, misbehave = CASES[name]
    with tempfile.TemporaryDirectory() as root:
        served = ServeProcess(Path(root), "--mount", f"good={FAKE}", "--mount", f"bad={command}")
        drain = threading.Thread(target=served.process.stderr.read, daemon=True)  # type: ignore[union-attr]
        drain.start()
        try:
            clients = [served.client() for _ in range(sessions)]
            for client in clients:
                client.initialize()
                client.call("good__echo", {"text": "x"})
            caller = Caller(clients[0])
            culprit = threading.Thread(target=_run, args=(misbehave, clients[1], seconds), daemon=True)
            waits = []
            end = time.monotonic() + seconds
            culprit.start()
            while time.monotonic() < end:
                waits.append(caller.wait())
            return waits
        finally:
            served.process.kill()
            served.process.wait()


def _run(misbehave: Misbehave, client: HttpClient, seconds: float) -> None:
    try:
        misbehave(client, seconds)
    except (OSError, http.client.HTTPException):
        pass  # the measurement is over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--only", default="", help="cases, with commas between them")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(CASES)
    worst = 0.0
    print(f"{'beside':<24}{'calls':>7}{'p50 ms':>9}{'p99 ms':>9}{'longest ms':>12}")
    for name in names:
        waits = sorted(measure(name, options.seconds, options.sessions))
        worst = max(worst, waits[-1])
        p99 = waits[int(len(waits) * 0.99)]
        p50, longest = statistics.median(waits), waits[-1]
        print(
            f"{name:<24}{len(waits):>7}{p50 * 1000:>9.1f}{p99 * 1000:>9.1f}{longest * 1000:>12.1f}",
            flush=True,
        )
    print(f"longest of all: {worst:.3f} s, limit {LIMIT_S:g} s")
    return int(worst > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
