"""`perdure serve` is killed again and again while many sessions of both eras write through it.

Every client appends numbered lines to a file of its own. Whenever its connection breaks it asks the same again, under
the same id, until it is answered. In the end no session may be lost, and every line that was acknowledged stands in
its file once; one whose outcome was said to be unknown, at most once.

    python -m harness.host.serve_storm [--clients 50] [--kills 20]
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from perdure.testing.http_client import HttpClient, ServeProcess

PATIENCE_S = 60.0


class Tally(msgspec.Struct):
    """What one client saw."""

    acknowledged: list[str] = []
    unknown: list[str] = []
    refused: list[str] = []
    retries: int = 0
    violations: list[str] = []


class Writer(threading.Thread):
    """One session. `name` is its file."""

    def __init__(self, name: str, client: HttpClient, era: str, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.tally = Tally()
        self._client = client
        self._era = era
        self._stop_now = stop

    def run(self) -> None:
        try:
            while self._era == "handshake" and self._client.session is None:
                with suppress(OSError, http.client.HTTPException):
                    self._client.initialize()
            number = 0
            while not self._stop_now.is_set():
                number += 1
                self._write(number)
        except Exception as error:
            self.tally.violations.append(f"{self.name}: {type(error).__name__}: {error}")

    def _write(self, number: int) -> None:
        line = f"{self.name} {number}\n"
        arguments = {"path": self.name, "content": line, "mode": "append"}
        params = {"name": "safe_write", "arguments": arguments}
        answer = self._asked(params, f"{self.name}-{number}")
        if "error" in answer:
            outcome = answer["error"].get("data", {}).get("outcome")
            if outcome == "unknown":
                self.tally.unknown.append(line)
            elif outcome == "not_started":
                self.tally.refused.append(line)
            else:
                self.tally.violations.append(f"{line.strip()}: {answer['error']}")
        elif answer["result"].get("isError"):
            self.tally.violations.append(f"{line.strip()}: {answer['result']}")
        else:
            self.tally.acknowledged.append(line)

    def _asked(self, params: dict[str, Any], identity: str) -> Any:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._era == "modern":
                    answer = self._client.modern("tools/call", params, identity)
                else:
                    answer = self._client.request("tools/call", params, identity)
                if answer.status == 404:
                    raise LookupError("the session is lost")
                return answer.last
            except (OSError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise
                self.tally.retries += 1
                time.sleep(0.25)


def storm(root: Path, clients: int, kills: int) -> tuple[list[Tally], list[str]]:
    """What each client saw, and what was wrong."""
    served = ServeProcess(root)
    stop = threading.Event()
    writers = [
        Writer(f"{era[0]}{n}", _client(served, f"{era[0]}{n}"), era, stop)
        for n in range(clients)
        for era in ("handshake", "modern")
    ]
    try:
        for writer in writers:
            writer.start()
        for _ in range(kills):
            _wait_for_work(writers)
            served.restart()
        _wait_for_work(writers)
        stop.set()
        for writer in writers:
            writer.join(PATIENCE_S)
    finally:
        served.stop()
    return [writer.tally for writer in writers], [
        problem for writer in writers for problem in _judged(writer, served.workspace)
    ]


def _wait_for_work(writers: list[Writer]) -> None:
    """Until as many calls were acknowledged as there are clients: a busy machine takes its time to start servers."""
    before = sum(len(writer.tally.acknowledged) for writer in writers)
    until = time.monotonic() + PATIENCE_S / 2
    while time.monotonic() < until:
        if sum(len(writer.tally.acknowledged) for writer in writers) >= before + len(writers):
            return
        time.sleep(0.05)


def _client(served: ServeProcess, name: str) -> HttpClient:
    client = served.client()
    client.name = name
    return client


def _judged(writer: Writer, workspace: Path) -> list[str]:
    found = [*writer.tally.violations]
    if writer.is_alive():
        found.append(f"{writer.name}: still waits for an answer")
    path = workspace / writer.name
    counts = Counter(path.read_text().splitlines(keepends=True) if path.exists() else ())
    for line in writer.tally.acknowledged:
        if counts[line] != 1:
            found.append(f"{line.strip()} was acknowledged and is there {counts[line]} times")
    for line in writer.tally.unknown:
        if counts[line] > 1:
            found.append(f"{line.strip()} is there {counts[line]} times")
    for line in writer.tally.refused:
        if counts[line]:
            found.append(f"{line.strip()} was said not to have begun, and is there")
    known = {*writer.tally.acknowledged, *writer.tally.unknown, *writer.tally.refused}
    found += [f"{line.strip()} is there, and nobody was told" for line in counts if line not in known]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="harness.host.serve_storm", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--clients", type=int, default=50, help="of each era: 50")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        tallies, violations = storm(Path(folder), options.clients, options.kills)
    print(
        f"{2 * options.clients} sessions, {options.kills} kills, "
        f"{sum(len(one.acknowledged) for one in tallies):,} acknowledged, "
        f"{sum(len(one.unknown) for one in tallies)} unknown, "
        f"{sum(len(one.refused) for one in tallies)} not started, "
        f"{sum(one.retries for one in tallies):,} tries again"
    )
    for problem in violations[:20]:
        print(f"  {problem}")
    print(f"violations {len(violations)}")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
