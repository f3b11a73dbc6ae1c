"""The time machine's hooks beside bare Python, `git status` and shadow-git snapshots: `python -m bench.timeline`.

A call of a shell tool that changes five files is bracketed by two hooks, as a client starts them: a process each, with the
hook's JSON on its standard input. Each round runs everything once, so that what else the machine does falls on all alike.

| figure | compared with |
|---|---|
| both hooks, with a resident host | two bare Python starts, and shadow-git snapshots before and after the call |
| each hook, without a host | a bare Python start and `git status` of the same tree |
| bytes in the store after many calls that change source files of about 10 KB | the changed contents, compressed |
| a rewind of 1,000 files | `git checkout` of the same files |

What a change costs beside its contents (rows, indexes) does not depend on the size of the files, so the bytes in the store
are also shown for smaller files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from random import Random

from bench.client import Client
from bench.report import Report, machine, ms, p50

SIZES = (1_000, 10_000, 50_000)
LARGEST = SIZES[-1]
ROUNDS, QUICK = 20, 5
CHANGED = 5
CALLS, QUICK_CALLS = 1_000, 100
SOURCE_BYTES, SMALLER_SOURCES = 10_000, (400, 4_000)
REWOUND = 1_000
RESIDENT_MS = 40.0
COLD_RATIO, SNAPSHOT_RATIO, STORED_RATIO, REWIND_RATIO = 4.0, 3.0, 1.3, 2.0
GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds instead of {ROUNDS}")
    parser.add_argument("--files", type=int, action="append", help="size of a tree (default: all three)")
    beside = Path(sys.executable).parent / "perdure"
    parser.add_argument("--perdure", type=Path, default=beside, help="the command to measure")
    options = parser.parse_args()
    report = Report()
    print(machine())
    rounds = QUICK if options.quick else ROUNDS
    for files in options.files or SIZES:
        with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
            tree = Tree(Path(scratch), options.perdure, files)
            measure_hooks(tree, report, rounds, is_judged=files == LARGEST)
    for mean in (SOURCE_BYTES, *SMALLER_SOURCES):
        is_judged = mean == SOURCE_BYTES
        calls = CALLS if is_judged and not options.quick else QUICK_CALLS
        with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
            tree = SourceTree(Path(scratch), options.perdure, SIZES[0], mean)
            measure_storage(tree, report, calls, is_judged=is_judged)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        measure_rewind(Tree(Path(scratch), options.perdure, REWOUND), report, rounds)
    report.close()
    return 1 if report.broken else 0


class Tree:
    """A git repository with so many files, all committed, and the hooks of one client."""

    def __init__(self, scratch: Path, command: Path, files: int) -> None:
        self.root = scratch / "work"
        self.scratch = scratch
        self.command = str(command)
        self.files = files
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "CLAUDE_", "GIT_"))}
        self.environ: Mapping[str, str] = {
            **kept,
            "PERDURE_HOME": str(scratch / "home"),
            "HOME": str(scratch),
            "CLAUDE_PROJECT_DIR": str(self.root),
        }
        self._calls = 0
        for number in range(files):
            path = self.path(number)
            if number % 20 == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text(number))
        self.run([*GIT, "init", "-q"])
        self.run([*GIT, "add", "-A"])
        self.run([*GIT, "commit", "-qm", "all"])

    def text(self, number: int) -> str:
        return f"line of file {number}\n" * 20

    def path(self, number: int) -> Path:
        return self.root / f"d{number // 500}" / f"s{number // 20 % 25}" / f"f{number}.txt"

    def run(self, argv: list[str], **extra: str) -> float:
        began = time.perf_counter()
        subprocess.run(
            argv, cwd=self.root, env={**self.environ, **extra}, check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - began

    def change(self, serial: int) -> int:
        """What the tool does: one more line in each file. Returns how many bytes it wrote, compressed."""
        written = 0
        for step in range(CHANGED):
            path = self.path((serial * 7919 + step * 104_729) % self.files)
            lines = path.read_text().split("\n")
            lines.insert((serial * 31 + step) % len(lines), f"# call {serial}, change {step}")
            content = "\n".join(lines)
            path.write_text(content)
            written += len(zlib.compress(content.encode(), 1))
        return written

    def hook(self, event: str, call: int) -> float:
        """One hook, from the start of its process to its end."""
        told = {
            "hook_event_name": event,
            "session_id": "bench",
            "cwd": str(self.root),
            "tool_name": "Bash",
            "tool_use_id": f"toolu_{call}",
            "tool_input": {"command": "make format"},
            **({"tool_response": {"stdout": "", "stderr": ""}} if event == "PostToolUse" else {}),
        }
        began = time.perf_counter()
        done = subprocess.run(
            [self.command, "hook", "journal", "--client", "claude-code"],
            input=json.dumps(told).encode(),
            cwd=self.root,
            env=self.environ,
            check=True,
            capture_output=True,
        )
        took = time.perf_counter() - began
        if done.stderr:
            raise RuntimeError(done.stderr.decode())
        return took

    def call(self) -> tuple[float, float, int]:
        """A call between its hooks: their times, and what the call wrote."""
        self._calls += 1
        before = self.hook("PreToolUse", self._calls)
        written = self.change(self._calls)
        return before, self.hook("PostToolUse", self._calls), written

    def snapshot(self) -> float:
        """What most others do: the whole tree into a second index, and that as a tree object."""
        index = str(self.scratch / "shadow-index")
        if not os.path.exists(index):
            shutil.copy(self.root / ".git" / "index", index)
        return self.run([*GIT, "add", "-A"], GIT_INDEX_FILE=index) + self.run(
            [*GIT, "write-tree"], GIT_INDEX_FILE=index
        )

    def status(self) -> float:
        return self.run([*GIT, "--no-optional-locks", "status", "--porcelain"])

    def bare(self) -> float:
        return self.run([sys.executable, "-c", "pass"])


class SourceTree(Tree):
    """The same with pieces of the standard library's source text, of this many bytes on average."""

    def __init__(self, scratch: Path, command: Path, files: int, mean: int) -> None:
        self.mean = mean
        self._random = Random(1)
        folder = Path(os.__file__).parent
        self._source = "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py")))
        super().__init__(scratch, command, files)

    def text(self, number: int) -> str:
        size = int(self.mean * self._random.uniform(0.3, 1.7))
        start = self._random.randrange(len(self._source) - size)
        return self._source[start : start + size]


def measure_hooks(tree: Tree, report: Report, rounds: int, *, is_judged: bool) -> None:
    report.title(f"Two hooks around a call that changes {CHANGED} of {tree.files:,} files, p50")
    first = tree.hook("PreToolUse", 0) + tree.hook("PostToolUse", 0)
    report.figure("first capture", ms(first))
    cold_before, cold_after, status, bare = [], [], [], []
    tree.call()
    for _ in range(rounds):
        before, after, _ = tree.call()
        cold_before.append(before)
        cold_after.append(after)
        status.append(tree.status())
        bare.append(tree.bare())
    for name, samples in (("before", cold_before), ("after", cold_after)):
        beyond = p50(samples) - p50(bare)
        text = f"{ms(p50(samples))}, {ms(beyond)} beyond Python; git status {ms(p50(status))}"
        if is_judged:
            report.ratio(f"without a host, hook {name}", text, beyond / p50(status), COLD_RATIO)
        else:
            report.figure(f"without a host, hook {name}", f"{text}  ratio {beyond / p50(status):.2f}x")
    with Client([tree.command, "run"], cwd=tree.root, env=tree.environ) as client:
        client.initialize()
        client.call("health", {})
        tree.call()
        resident, snapshots, bare = [], [], []
        for _ in range(rounds):
            before, after, _ = tree.call()
            resident.append(before + after)
            snapshots.append(tree.snapshot() + tree.snapshot())
            bare.append(tree.bare())
    beyond = p50(resident) - 2 * p50(bare)
    text = f"{ms(p50(resident))}, {ms(beyond)} beyond two Python starts"
    shadow = f"{ms(p50(snapshots))} for two snapshots, {p50(snapshots) / max(beyond, 1e-6):.1f}x of that"
    if is_judged:
        report.at_most(
            "with a host, both hooks", f"{text}, limit {RESIDENT_MS:.0f} ms", beyond * 1000, RESIDENT_MS
        )
        report.above(
            "shadow git", f"{shadow}, floor {SNAPSHOT_RATIO:.0f}x", p50(snapshots) / beyond, SNAPSHOT_RATIO
        )
    else:
        report.figure("with a host, both hooks", text)
        report.figure("shadow git", shadow)


def measure_storage(tree: SourceTree, report: Report, calls: int, *, is_judged: bool) -> None:
    report.title(f"Bytes in the store after {calls:,} calls, files of {tree.mean:,} bytes")
    with Client([tree.command, "run"], cwd=tree.root, env=tree.environ) as client:
        client.initialize()
        tree.call()
    before = _stored(tree)
    with Client([tree.command, "run"], cwd=tree.root, env=tree.environ) as client:
        client.initialize()
        written = sum(tree.call()[2] for _ in range(calls))
    stored = _stored(tree) - before
    text = f"{stored / 1e6:.2f} MB of {written / 1e6:.2f} MB"
    if is_judged:
        report.ratio("stored / changed, compressed", text, stored / written, STORED_RATIO)
    else:
        each = (stored - written) / calls / CHANGED
        report.figure("stored / changed, compressed", f"{text}  ratio {stored / written:.2f}x")
        report.figure("beside the contents", f"{each:,.0f} bytes for each changed file")


def _stored(tree: Tree) -> int:
    """The bytes of all files of the store, with SQLite's log written back, as the last close of the journal does."""
    home = tree.scratch / "home"
    for journal in home.glob("workspaces/*/journal.db"):
        connection = sqlite3.connect(journal)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def measure_rewind(tree: Tree, report: Report, rounds: int) -> None:
    report.title(f"A rewind of {REWOUND:,} files")
    rewinds, checkouts = [], []
    tree.call()
    for number in range(min(rounds, 5)):
        tree.hook("PreToolUse", 1000 + number)
        for file in range(tree.files):
            with tree.path(file).open("a") as appended:
                appended.write(f"round {number}\n")
        tree.hook("PostToolUse", 1000 + number)
        listed = subprocess.run(
            [tree.command, "timeline", "--n", "1", "--json"],
            cwd=tree.root,
            env=tree.environ,
            check=True,
            capture_output=True,
        )
        newest = json.loads(listed.stdout)["changes"][-1]["id"]
        rewinds.append(tree.run([tree.command, "rewind", str(newest)]) - tree.bare())
        for file in range(tree.files):
            with tree.path(file).open("a") as appended:
                appended.write(f"round {number}\n")
        checkouts.append(tree.run([*GIT, "checkout", "-q", "--", "."]))
        tree.call()
    report.ratio(
        "rewind / git checkout",
        f"{ms(p50(rewinds))} beyond Python; git {ms(p50(checkouts))}",
        p50(rewinds) / p50(checkouts),
        REWIND_RATIO,
    )


if __name__ == "__main__":
    sys.exit(main())
