"""Twenty servers of a registry behind one host: how long until they are ready, and what each costs the others.

    python -m bench.mounts [--mounts 20] [--calls 2000] [--only start,dead,calls]

start   from the first request to the list with every server's tools. Each server sleeps a while before it answers, as
        real ones do; the time must be bounded by the slowest of them, not by their sum.
dead    the time of `tools/list` while one of them dies at every start, beside the time without it.
calls   the time of one call with all of them mounted, beside the time with one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.client import Client
from bench.report import Report, machine, ms, p50

FAKE = Path(__file__).resolve().parent.parent / "src" / "perdure" / "testing" / "fake_server.py"
SECTIONS = ("start", "dead", "calls")
DELAY_S = 3.0
START_LIMIT_S = 3 * DELAY_S  # the slowest, and the processor's time to start them all
LIST_RATIO = 1.5
CALL_RATIO = 1.5
TEXT = {"text": "x" * 200}


def section(name: str, *options: str) -> str:
    words = ["-S", str(FAKE), f"--name={name}", *options]
    return f"## {name}\ncommand: {sys.executable}\nargs: {json.dumps(words)}\n\n"


def host(scratch: Path, *sections: str) -> Client:
    """A host with a registry of its own and nothing kept from an earlier run."""
    scratch.mkdir()
    allowed = f"## Allowed commands\n{os.path.basename(sys.executable)}\n"
    (scratch / "mcp.md").write_text("# MCP servers\n\n" + "".join(sections) + allowed)
    env = {**os.environ, "PERDURE_HOME": str(scratch / "home"), "PERDURE_REGISTRY": str(scratch / "mcp.md")}
    return Client([sys.executable, "-P", "-m", "perdure", "run"], cwd=scratch, env=env)


def ready(client: Client, count: int) -> float:
    """Seconds until every server's tools are listed."""
    begun = time.perf_counter()
    client.initialize()
    while time.perf_counter() - begun < 120:
        listed = client.result(client.send("tools/list"))["tools"]
        if sum(tool["name"].endswith("__echo") for tool in listed) >= count:
            return time.perf_counter() - begun
        time.sleep(0.02)
    raise TimeoutError("the servers never became ready")


def lists(client: Client, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        client.result(client.send("tools/list"))
        found.append(time.perf_counter() - begun)
    return found


def calls(client: Client, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        client.call("m0__echo", TEXT)
        found.append(time.perf_counter() - begun)
    return found


def measure_start(scratch: Path, mounts: int, report: Report) -> None:
    report.title(f"{mounts} servers that take {DELAY_S:g} s each to answer")
    delayed = [section(f"m{number}", "--start-delay", str(DELAY_S)) for number in range(mounts)]
    with host(scratch / "start", *delayed) as client:
        seconds = ready(client, mounts)
    text = f"{ms(seconds)}, one after the other would be {ms(mounts * DELAY_S)}"
    report.at_most("first request to every tool listed", text, seconds, START_LIMIT_S)


def measure_dead(scratch: Path, mounts: int, rounds: int, report: Report) -> None:
    report.title("tools/list beside a server that dies at every start")
    living = [section(f"m{number}") for number in range(mounts - 1)]
    dead = section("dead", "--crash-at-start", "1000000", "--state", str(scratch / "starts"))
    with host(scratch / "quiet", *living) as quiet, host(scratch / "dead", *living, dead) as disturbed:
        ready(quiet, mounts - 1)
        ready(disturbed, mounts - 1)
        without: list[float] = []
        beside: list[float] = []
        for _ in range(20):
            without += lists(quiet, rounds // 20)
            beside += lists(disturbed, rounds // 20)
    text = f"{ms(p50(beside))} beside {ms(p50(without))} without it"
    report.ratio("p50", text, p50(beside) / p50(without), LIST_RATIO)


def measure_calls(scratch: Path, mounts: int, rounds: int, report: Report) -> None:
    report.title("one call, by the number of mounted servers")
    many = [section(f"m{number}") for number in range(mounts)]
    with host(scratch / "one", many[0]) as alone, host(scratch / "many", *many) as among:
        ready(alone, 1)
        ready(among, mounts)
        calls(alone, 200)
        calls(among, 200)
        first: list[float] = []
        second: list[float] = []
        for _ in range(20):
            first += calls(alone, rounds // 20)
            second += calls(among, rounds // 20)
    text = f"{ms(p50(second))} among {mounts}, {ms(p50(first))} alone"
    report.ratio("p50", text, p50(second) / p50(first), CALL_RATIO)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mounts", type=int, default=20)
    parser.add_argument("--calls", type=int, default=2000, help="per side: 2000")
    parser.add_argument("--only", default=",".join(SECTIONS), help="some of: " + ",".join(SECTIONS))
    options = parser.parse_args()
    report = Report()
    print(f"mounts benchmark\n  machine  {machine()}")
    with tempfile.TemporaryDirectory(prefix="perdure-mounts-") as folder:
        scratch = Path(folder)
        wanted = options.only.split(",")
        if "start" in wanted:
            measure_start(scratch, options.mounts, report)
        if "dead" in wanted:
            measure_dead(scratch, options.mounts, min(options.calls, 400), report)
        if "calls" in wanted:
            measure_calls(scratch, options.mounts, options.calls, report)
    report.close()
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
