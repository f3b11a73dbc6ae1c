"""Four processes write to one workspace at the same time: of those who want the same, one gets it; nothing is lost.

    python -m harness.races.write_racers [--rounds 200] [--way worker|host|naive]

In every round each racer is sent one call, and the next round begins when all have answered. `--way naive` races
processes that look first and write then, as most programs do: it shows that the race is real.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from perdure.testing.raw_client import RawClient

Way = Literal["worker", "host", "naive"]
WAYS: Final[tuple[Way, ...]] = ("worker", "host", "naive")
RACERS: Final = 4
ANSWER_S: Final = 60.0
PADDING: Final = "." * 200
LOSING: Final = ("stale_precondition", "conflict")


class Tally(msgspec.Struct):
    rounds: int = 0
    calls: int = 0
    violations: list[str] = []


class Racers:
    """Processes on one workspace, each with a client of its own."""

    def __init__(self, base: Path, way: Way, count: int = RACERS) -> None:
        self.workspace = base / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "PERDURE_HOME": str(base / "home")}
        self.clients = [RawClient(_command(way, self.workspace), env=env) for _ in range(count)]
        for client in self.clients:
            client.initialize(timeout=ANSWER_S)

    def close(self) -> None:
        for client in self.clients:
            client.kill()

    def race(self, tool: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One call for each, all at once; what each was answered."""
        sent = [
            (client, client.start_call(tool, call)) for client, call in zip(self.clients, calls, strict=True)
        ]
        answers = [client.wait(identity, ANSWER_S) for client, identity in sent]
        return [_payload(answer) for answer in answers]


def _command(way: Way, workspace: Path) -> list[str]:
    if way == "naive":
        return [sys.executable, "-P", "-m", "harness.races.naive_writer", str(workspace)]
    served = [sys.executable, "-P", "-m", "perdure", "run" if way == "host" else "worker"]
    return [*served, "--workspace", str(workspace), "--render", "json", "--detail", "full"]


def _payload(answer: dict[str, Any]) -> dict[str, Any]:
    if "result" not in answer:
        return {"ok": False, "error": f"JSON-RPC {answer.get('error')}"}
    found: dict[str, Any] = answer["result"]["structuredContent"]
    return found


# --- the races ------------------------------------------------------------------------------------------------


def create(racers: Racers, number: int) -> Iterator[str]:
    """All want the same new file."""
    contents = [f"{racer} in round {number} {PADDING}\n" for racer in range(len(racers.clients))]
    path = f"new/{number}"
    answers = racers.race("safe_write", [{"path": path, "content": content} for content in contents])
    yield from _one_winner(racers, path, contents, answers)


def append(racers: Racers, number: int) -> Iterator[str]:
    """All append to one file."""
    lines = [f"{number} {racer} {PADDING}\n" for racer in range(len(racers.clients))]
    calls = [{"path": "log", "content": line, "mode": "append"} for line in lines]
    answers = racers.race("safe_write", calls)
    yield from (f"append {number}: refused: {told}" for told in answers if not told["ok"])
    there = (racers.workspace / "log").read_text().splitlines(keepends=True)
    yield from (f"append {number}: {there.count(line)} times" for line in lines if there.count(line) != 1)
    if len(there) != len(lines) * (number + 1):
        yield f"append {number}: {len(there)} lines"


def swap(racers: Racers, number: int) -> Iterator[str]:
    """All want to replace the same content by their own."""
    file = racers.workspace / "swapped"
    if number == 0:
        file.write_text("begin\n")
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    contents = [f"{racer} in round {number} {PADDING}\n" for racer in range(len(racers.clients))]
    same = {"path": "swapped", "mode": "overwrite", "expected_prev_sha256": expected}
    answers = racers.race("safe_write", [{**same, "content": content} for content in contents])
    yield from _one_winner(racers, "swapped", contents, answers)


def edit(racers: Racers, number: int) -> Iterator[str]:
    """Each edits its own line of one file."""
    file = racers.workspace / "edited"
    count = len(racers.clients)
    if number == 0:
        file.write_text(_lines(count, 0))
    calls = [
        {"path": "edited", "edits": [{"old": f"<{racer} at {number}>", "new": f"<{racer} at {number + 1}>"}]}
        for racer in range(count)
    ]
    answers = racers.race("edit", calls)
    yield from (f"edit {number}: refused: {told}" for told in answers if not told["ok"])
    if file.read_text() != _lines(count, number + 1):
        yield f"edit {number}: an edit was lost"
        file.write_text(_lines(count, number + 1))


RACES: Final = {"create": create, "append": append, "swap": swap, "edit": edit}


def _lines(count: int, number: int) -> str:
    return "".join(f"<{racer} at {number}>\n{PADDING}\n" for racer in range(count))


def _one_winner(
    racers: Racers, path: str, contents: list[str], answers: list[dict[str, Any]]
) -> Iterator[str]:
    won = [number for number, told in enumerate(answers) if told["ok"]]
    if len(won) != 1:
        yield f"{path}: {len(won)} winners"
    elif (racers.workspace / path).read_text() != contents[won[0]]:
        yield f"{path}: the content is not the winner's"
    for told in answers:
        if not told["ok"] and told["error"] not in LOSING:
            yield f"{path}: lost by {told}"


def race(base: Path, way: Way, rounds: int) -> Tally:
    """Every kind of race, `rounds` times."""
    tally = Tally()
    racers = Racers(base, way)
    try:
        for number in range(rounds):
            for run in RACES.values():
                tally.violations += run(racers, number)
                tally.rounds += 1
                tally.calls += len(racers.clients)
    finally:
        racers.close()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--way", choices=WAYS, default="worker")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-racers-") as base:
        tally = race(Path(base), options.way, options.rounds)
    print(f"{options.way}: rounds {tally.rounds}  calls {tally.calls}  {time.monotonic() - began:.0f} s")
    print(f"violations {len(tally.violations)}")
    for one in tally.violations[:20]:
        print(f"  {one[:200]}")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
