"""What reservations cost: in a write, in a hook, and to acquire one: `python -m bench.reserve`.

Writes alternate between two hosts: one with reservations switched off, one with twenty of them in force. The hook is a
process of its own, as a client starts it, before a call of its own editing tool, with a resident host.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.client import Client
from bench.report import Report, machine, ms, p50

ROUNDS, QUICK = 500, 100
HOOKS = 20
RESERVED = 20
CHECK_MS, HOOK_MS, ACQUIRE_MS = 0.2, 30.0, 3.0


class Place:
    """A workspace with a home of its own. `mode` is that of the settings."""

    def __init__(self, folder: Path, command: Path, mode: str) -> None:
        self.root = folder / "work"
        self.root.mkdir(parents=True)
        settings = folder / "config" / "perdure" / "perdure.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f'[reservations]\nmode = "{mode}"\n')
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "RW_"))},
            "PERDURE_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "CLAUDE_PROJECT_DIR": str(self.root),
        }
        self.command = str(command)

    def host(self) -> Client:
        return Client([self.command, "run"], cwd=self.root, env=self.environ)

    def hook(self) -> float:
        fields = {
            "hook_event_name": "PreToolUse",
            "session_id": "bench",
            "cwd": str(self.root),
            "tool_name": "Write",
            "tool_use_id": "call",
            "tool_input": {"file_path": str(self.root / "free.py"), "content": "x"},
        }
        began = time.perf_counter()
        subprocess.run(
            [self.command, "hook", "journal", "--client", "claude-code"],
            input=json.dumps(fields).encode(),
            cwd=self.root,
            env=self.environ,
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} writes instead of {ROUNDS}")
    beside = Path(sys.executable).parent / "perdure"
    parser.add_argument("--perdure", type=Path, default=beside, help="the command to measure")
    options = parser.parse_args()
    report = Report()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        without = Place(Path(scratch) / "off", options.perdure, "off")
        reserved = Place(Path(scratch) / "explicit", options.perdure, "explicit")
        with without.host() as plain, reserved.host() as checked:
            for host in (plain, checked):
                host.initialize()
                write(host, 0)
            report.title(f"Reservations: {RESERVED} in force, p50")
            acquired = [acquire(checked, number) for number in range(RESERVED)]
            report.at_most("acquire", ms(p50(acquired)), p50(acquired) * 1000, ACQUIRE_MS)
            measure_writes(plain, checked, report, QUICK if options.quick else ROUNDS)
            measure_hook(reserved, report)
    report.close()
    return 1 if report.broken else 0


def measure_writes(plain: Client, checked: Client, report: Report, rounds: int) -> None:
    without, with_check = [], []
    for number in range(1, rounds + 1):
        without.append(write(plain, number))
        with_check.append(write(checked, number))
    cost = p50(with_check) - p50(without)
    text = f"{ms(cost)} more than {ms(p50(without))} with reservations off"
    report.at_most("the check in a write of 1 KB", text, cost * 1000, CHECK_MS)


def measure_hook(place: Place, report: Report) -> None:
    place.hook()
    hooks, bare = [], []
    for _ in range(HOOKS):
        hooks.append(place.hook())
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - began)
    beyond = p50(hooks) - p50(bare)
    report.at_most("a hook with a resident host", f"{ms(beyond)} beyond Python", beyond * 1000, HOOK_MS)


def acquire(host: Client, number: int) -> float:
    began = time.perf_counter()
    host.call("reserve", {"action": "acquire", "paths": [f"src/part{number}", f"docs/{number}/*.md"]})
    return time.perf_counter() - began


def write(host: Client, number: int) -> float:
    began = time.perf_counter()
    content = f"{number}\n" + "x" * 1000
    host.call("safe_write", {"path": "file.py", "content": content, "mode": "overwrite"})
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
