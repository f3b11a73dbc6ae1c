"""What commands that only read cost from start to end, beside bare Python: `python -m bench.commands`.

Each round runs Python and every command once, so that what else the machine does falls on all alike. Counted is the
time on a processor, of a command and what it starts, since a machine that others use says little by its clock. The
requirement is on the median of the ratios of a round: at most 6 times `python -c pass` of the same environment.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.client import Client
from bench.report import Report, machine, ms, p50

LIMIT = 6.0
ROUNDS, QUICK = 40, 10
PYTHON = "python -c pass"
# The everyday ones are held to the requirement; the others are shown as they are.
HELD = (
    "--version",
    "--help",
    "status",
    "status --json",
    "top --once",
    "journal",
    "journal --json",
    "history notes.txt",
    "state get key",
    "state list",
    "state history key",
    "state export",
    "diff notes.txt",
    "verify",
    "handoff show",
    "registry list",
    "registry list --json",
    "registry show files",
    "registry validate",
)
SHOWN = ("registry list --help", "completion bash", "doctor")
REGISTRY = """# MCP servers

## files
command: npx
args: ["-y", "@example/server-files@1.2.3", "/srv"]
env: FILES_TOKEN=$FILES_TOKEN
description: Files, in one place
timeout: startup=20, call=60

## hours
command: python3
args: -m, hours
description: What time it is

## search
url: https://search.example/mcp
headers: Authorization=Bearer $SEARCH_TOKEN
description: The web
enabled: false
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds instead of {ROUNDS}")
    beside = Path(sys.executable).parent / "perdure"
    parser.add_argument("--perdure", type=Path, default=beside, help="the command to measure")
    options = parser.parse_args()
    report = Report()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        place = Place(Path(scratch), options.perdure)
        place.fill()
        measure(place, report, QUICK if options.quick else ROUNDS)
    report.close()
    return 1 if report.broken else 0


class Place:
    """A workspace in which something was written, and nothing runs."""

    def __init__(self, root: Path, command: Path) -> None:
        self.root = root
        self.command = str(command)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "RW_", "COLUMNS"))}
        self.environ: Mapping[str, str] = {**kept, "PERDURE_HOME": str(root / "home"), "HOME": str(root)}
        (root / "work").mkdir()
        (root / "servers.md").write_text(REGISTRY, encoding="utf-8")

    def fill(self) -> None:
        envelope = {
            "task_id": "t",
            "status": "partial",
            "agent": "bench",
            "summary": "half",
            "next_steps": [],
            "last_good_state": [],
        }
        with Client([self.command, "worker"], cwd=self.root / "work", env=self.environ) as client:
            client.initialize()
            for number in range(50):
                client.call("safe_write", {"path": f"f{number}.txt", "content": f"{number}\n"})
            client.call("safe_write", {"path": "notes.txt", "content": "one\n"})
            client.call("edit", {"path": "notes.txt", "edits": [{"old": "one", "new": "two"}]})
            client.call("set_state", {"key": "key", "value": "1"})
            client.call("handoff_write", {"envelope": envelope})
        self.run([self.command, "verify"])

    def argv(self, words: str) -> list[str]:
        """The registry is one of its own: `doctor` would start what is in that of the workspace."""
        own = ["--registry", str(self.root / "servers.md")] if words.startswith("registry") else []
        return [self.command, *words.split(), *own]

    def run(self, argv: list[str]) -> float:
        began = used()
        done = subprocess.run(
            argv,
            env=self.environ,
            cwd=self.root / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        took = used() - began
        if done.returncode:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-500:]}")
        return took


def used() -> float:
    """Seconds that ended children have spent on a processor."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def measure(place: Place, report: Report, rounds: int) -> None:
    commands = {PYTHON: [sys.executable, "-c", "pass"]}
    commands |= {words: place.argv(words) for words in (*HELD, *SHOWN)}
    took: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, argv in commands.items():
            seconds = place.run(argv)
            if number:  # the first round only warms up
                took[name].append(seconds)
    base = took[PYTHON]
    report.title(
        f"processor time from start to end: median of {rounds} rounds; {PYTHON} takes {ms(p50(base))}"
    )
    for name in (*HELD, *SHOWN):
        ratio = p50([mine / bare for mine, bare in zip(took[name], base, strict=True)])
        if name in HELD:
            report.ratio(f"perdure {name}", ms(p50(took[name])), ratio, LIMIT)
        else:
            report.figure(f"perdure {name}", f"{ms(p50(took[name]))}  ratio {ratio:.2f}x")


if __name__ == "__main__":
    sys.exit(main())
