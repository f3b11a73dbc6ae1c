"""Writes under `kill -9`: the worker dies at named fault points and at random, and nothing acknowledged is lost.

    python -m perdure.testing.write_storm --kills 10000 [--seed N]

Each run is one session of `perdure run` whose workers die at the N-th fault point they pass, whichever that is,
or by a signal at a random moment. Afterwards a clean worker recovers, and the workspace is compared with what
was acknowledged: every call answered once, no write lost or torn or done twice, nothing left lying about, every
commit in the journal, the chain unbroken.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from perdure.storage import temp_names
from perdure.storage.journal import Filter
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.testing.raw_client import RawClient

CALLS = 40
IN_FLIGHT = 4
SETTINGS = (
    "[limits]\nrestarts_per_minute = 1000000\nunproductive_starts = 1000\nprobes = 50\nbackoff_max_s = 0.1\n"
)


class Tally(msgspec.Struct):
    runs: int = 0
    kills: int = 0
    calls: int = 0
    acknowledged: int = 0
    unknown: int = 0
    violations: list[str] = []


class Run:
    """One session, its calls, and what they were told."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        (self.workspace / "perdure.toml").write_text(SETTINGS)
        self.files: dict[str, bytes] = {}
        self.maybe: dict[str, set[bytes | None]] = {}
        self.lines: dict[str, bool] = {}
        self.kills = 0

    def start(self, fault: str) -> RawClient:
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.workspace)]
        env = {**os.environ, "PERDURE_HOME": str(self.home), "PERDURE_FAULT": fault}
        if not fault:
            del env["PERDURE_FAULT"]
        client = RawClient([*command, "--render", "json", "--detail", "full"], env=env)
        client.initialize()
        return client

    def storm(self, tally: Tally) -> None:
        by_point = self.chance.random() < 0.7
        client = self.start(f"*=kill@{self.chance.randint(12, 160)}" if by_point else "")
        try:
            waiting: list[tuple[int | str, str, dict[str, Any]]] = []
            for number in range(CALLS):
                tool, arguments = self._call(number)
                waiting.append((client.start_call(tool, arguments), tool, arguments))
                if not by_point and self.chance.random() < 0.3:
                    self._kill_worker(client)
                if len(waiting) >= IN_FLIGHT:
                    self._settle(client, *waiting.pop(0), tally)
            for one in waiting:
                self._settle(client, *one, tally)
            for identity, answers in client.answers.items():
                if len(answers) != 1:
                    tally.violations.append(f"request {identity} was answered {len(answers)} times")
            health = client.call("health", {}, timeout=20)["result"]["structuredContent"]
            self.kills = int(health["restart_count"])
        finally:
            client.kill()

    def _call(self, number: int) -> tuple[str, dict[str, Any]]:
        kind = self.chance.randrange(4)
        if kind == 0:
            return "safe_write", {"path": f"d{number % 3}/f{number}", "content": f"{number} " * 50}
        if kind == 1:
            return "safe_write", {"path": "log", "content": f"line {number}\n", "mode": "append"}
        if kind == 2:
            content = f"big {number} " * self.chance.choice([10, 30_000])
            return "safe_write", {"path": "same", "content": content, "mode": "overwrite"}
        ops = [{"op": "write", "path": f"t{number}{half}", "content": f"{number}"} for half in "ab"]
        return "transaction", {"ops": ops}

    def _kill_worker(self, client: RawClient) -> None:
        time.sleep(self.chance.random() * 0.02)
        health = client.call("health", {}, timeout=20)["result"]["structuredContent"]
        pid = next((m.get("pid") for m in health["mounts"]), None)
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _settle(
        self, client: RawClient, identity: int | str, tool: str, arguments: dict[str, Any], tally: Tally
    ) -> None:
        answer = client.wait(identity, 60)
        tally.calls += 1
        refused = bool(answer.get("result", {}).get("isError"))
        done = "result" in answer and not refused
        tally.acknowledged += done
        tally.unknown += "error" in answer
        if refused:
            tally.violations.append(f"{tool} was refused: {answer['result']['structuredContent']}")
        if "error" in answer and answer["error"]["data"]["outcome"] == "not_started":
            return
        for path, content in _written(tool, arguments):
            if path == "log":
                self.lines[content.decode()] = done
            elif done:
                self.files[path] = content
                self.maybe.setdefault(path, set()).add(content)
            else:
                self.maybe.setdefault(path, {None}).add(content)

    def verify(self, tally: Tally) -> None:
        """A worker without faults recovers; then the disk must agree with what was told."""
        client = self.start("")
        client.call("journal_tail", {}, timeout=60)
        client.close()
        wrong = tally.violations.append
        for path, contents in self.maybe.items():
            found = (self.workspace / path).read_bytes() if (self.workspace / path).exists() else None
            if found is None and path in self.files:
                wrong(f"{path}: an acknowledged write is lost")
            elif found is not None and found not in contents:
                wrong(f"{path}: torn, or of nobody ({len(found)} bytes)")
        log = (self.workspace / "log").read_text().splitlines(keepends=True) if self.lines else []
        for line, done in self.lines.items():
            count = log.count(line)
            if count > 1 or (done and count == 0):
                wrong(f"log: {line.strip()} is there {count} times")
        for found_path in self.workspace.rglob("*"):
            if temp_names.parsed(found_path.name) is not None:
                wrong(f"{found_path.name} was left behind")
        self._verify_journal(tally)

    def _verify_journal(self, tally: Tally) -> None:
        anchors = self.home / "anchors"
        journal = SqliteJournal(str(self.workspace / ".perdure"), str(next(anchors.iterdir())))
        try:
            tally.violations += [f"journal: {p.kind} {p.detail}" for p in journal.verify()]
            for path in self.maybe:
                rows = journal.rows(Filter(path=path), 1)
                file = self.workspace / path
                digest = sha256(file.read_bytes()) if file.exists() else None
                if (rows[0].new_sha if rows else None) != digest:
                    tally.violations.append(f"{path}: the journal's last row is not what is on disk")
        finally:
            journal.close()


def sha256(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).digest()


def _written(tool: str, arguments: dict[str, Any]) -> list[tuple[str, bytes]]:
    if tool == "transaction":
        return [(op["path"], op["content"].encode()) for op in arguments["ops"]]
    return [(arguments["path"], arguments["content"].encode())]


def storm(kills: int, seed: int, seconds: float = float("inf")) -> Tally:
    tally = Tally()
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    while tally.kills < kills and time.monotonic() < until and not tally.violations:
        with tempfile.TemporaryDirectory(prefix="perdure-write-storm-") as folder:
            run = Run(chance, Path(folder))
            run.storm(tally)
            run.verify(tally)
            tally.kills += run.kills
            tally.runs += 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    options = parser.parse_args()
    began = time.monotonic()
    tally = storm(options.kills, options.seed, options.seconds)
    print(f"seed {options.seed}  runs {tally.runs}  kills {tally.kills}  {time.monotonic() - began:.0f} s")
    print(f"calls {tally.calls}  acknowledged {tally.acknowledged}  unknown {tally.unknown}")
    print(f"violations {len(tally.violations)}")
    for one in tally.violations[:20]:
        print(f"  {one}")
    return 1 if tally.violations else 0


if __name__ == "__main__":
    sys.exit(main())
