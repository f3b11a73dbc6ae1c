"""Agents that work at the same time on one workspace, by real hook processes: `python -m harness.timeline.agents`.

    --rounds N   calls of each history (50)     --seed N    of the first history (random)
    --folder DIR where the workspaces are made  --bug NAME  a seeded bug that must be found

Four histories: two and four agents, with a resident recorder and without one. In each call an agent changes files of its
own, and files that all agents change. Every line that a call writes names the call, so the trial knows who wrote what. A
command line names all files that it changes, or none: one that names none also changes files that others name.

| law | |
|---|---|
| acknowledged | every hook is |
| whose | the calls whose lines a row brings or takes are among its authors |
| precise | a call that names other files only has no share in a file that some call names; calls that share a change were
open together |
| no loss | every line is in a row; the rows, replayed, give the tree |
| apart | an undo of a call leaves every line of other calls, unless they share the change |
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.timeline.client import SESSION, ResidentWorker, TrialClient, is_acknowledged, tool_call
from harness.timeline.history import (
    Record,
    RecordedRow,
    differences,
    digests_of,
    owner_of,
    read_head,
    read_record,
    replay,
    sharers_of,
)
from harness.timeline.launcher import Launcher
from harness.timeline.seeded_bugs import BUGS
from harness.timeline.shell import read_tree

_NAMED: Final = ("shared/log.txt", "shared/todo.txt")
_UNNAMED: Final = ("shared/generated.txt", "common.txt")
_SHARED: Final = (*_NAMED, *_UNNAMED)
_APPENDS: Final = 12
_LONGEST_S: Final = 0.01


class Done(msgspec.Struct):
    """One call, as the agent that made it knows it. Times are of one clock for all agents."""

    call: str
    agent: str
    named: list[str]
    begun: int = 0
    ended: int = 0
    wrote: list[str] = []
    """Files that have a line of it."""
    removed: list[str] = []
    faults: list[str] = []


class Agent:
    def __init__(self, launcher: Launcher, root: Path, name: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.name = name
        self.root = root
        self.client = TrialClient(launcher, root, SESSION, name)
        self._own: list[str] = []
        self._serial = 0

    def call(self, number: int) -> Done:
        call = f"{self.name}-{number}"
        is_named = self.chance.random() < 0.5
        plan = [self._draw(_NAMED if is_named else _SHARED) for _ in range(self.chance.randint(1, 4))]
        named = sorted({path for _, path in plan}) if is_named else []
        done = Done(call, self.name, named)
        told = tool_call(call, f"touch {' '.join(named)}" if is_named else "make")
        done.begun = time.monotonic_ns()
        self._hook(done, "PreToolUse", told)
        for action, path in plan:
            self._act(done, action, path)
        self._hook(done, "PostToolUse", told)
        done.ended = time.monotonic_ns()
        return done

    def _hook(self, done: Done, event: str, told: dict[str, Any]) -> None:
        ended = self.client.hook(event, **told)
        if not is_acknowledged(ended):
            done.faults.append(f"{event} of {done.call}: {ended}")

    def _draw(self, shared: tuple[str, ...]) -> tuple[str, str]:
        if self.chance.random() < 0.5:
            return "append", self.chance.choice(shared)
        if self._own and self.chance.random() < 0.4:
            path = self.chance.choice(self._own)
            action = self.chance.choice(("append", "rewrite", "remove"))
            if action == "remove":
                self._own.remove(path)
            return action, path
        self._serial += 1
        path = self.chance.choice((f"{self.name}/{self._serial}.txt", f"{self.name}-{self._serial}.txt"))
        self._own.append(path)
        return "append", path

    def _act(self, done: Done, action: str, path: str) -> None:
        place = self.root / path
        place.parent.mkdir(exist_ok=True)
        line = f"{done.call}\n".encode()
        if action == "remove":
            place.unlink(missing_ok=True)
            done.wrote = [other for other in done.wrote if other != path]
            done.removed.append(path)
            return
        done.wrote.append(path)
        if action == "rewrite":
            place.write_bytes(line)
            return
        for _ in range(_APPENDS if path in _SHARED else 1):
            fd = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(fd, line)
            os.close(fd)
            if path in _SHARED:  # a program that takes its time, so that hooks of the others come in between
                time.sleep(self.chance.random() * _LONGEST_S)


class Team:
    """One history: agents, each in a process of its own, in one workspace."""

    def __init__(self, folder: Path, seed: int, *, agents: int, is_resident: bool, bug: str = "") -> None:
        self.seed = seed
        self.folder = folder
        self.root = folder / "work"
        (self.root / "shared").mkdir(parents=True)
        for path in _SHARED:
            (self.root / path).write_text("first\n")
        self.launcher = Launcher(folder / "home", BUGS, bug)
        self.client = TrialClient(self.launcher, self.root)
        self.names = [f"agent{number}" for number in range(agents)]
        self.wrong: list[str] = []
        self.shared = self.rows = self.undone = 0
        self._is_resident = is_resident

    def run(self, calls: int) -> None:
        """`calls` of all agents together."""
        self.client.hook("SessionStart")
        first = digests_of(read_tree(self.root))
        head = read_head(self.launcher, self.root)
        worker = ResidentWorker(self.launcher, self.root) if self._is_resident else None
        done = self._work(-(-calls // len(self.names)))
        if worker is not None:
            worker.kill()
        if not is_acknowledged(ended := self.client.hook("UserPromptSubmit", prompt="go on")):
            self.wrong.append(f"acknowledged: the last hook ended with {ended}")
        record = read_record(self.launcher, self.root, set(), with_texts=True)
        self.wrong += [fault for one in done for fault in one.faults]
        self.wrong += record.problems
        lines = differences(digests_of(read_tree(self.root)), replay(first, record.rows, head, sys.maxsize))
        if lines:
            self.wrong.append(f"no loss: {lines[:4]}")
        self._judge(record, {one.call: one for one in done})
        self._undo_one(record)

    def _work(self, calls: int) -> list[Done]:
        children = []
        for number, name in enumerate(self.names):
            pid = os.fork()
            if pid == 0:
                self._be_agent(name, self.seed * 100 + number, calls)
            children.append(pid)
        for pid in children:
            if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                raise RuntimeError(f"an agent ended with {status}")
        files = [self.folder / f"{name}.json" for name in self.names]
        return [one for file in files for one in msgspec.json.decode(file.read_bytes(), type=list[Done])]

    def _be_agent(self, name: str, seed: int, calls: int) -> None:
        code = 1
        try:
            agent = Agent(self.launcher, self.root, name, seed)
            done = [agent.call(number) for number in range(calls)]
            (self.folder / f"{name}.json").write_bytes(msgspec.json.encode(done))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    # --- laws ----------------------------------------------------------------------------------------------

    def _judge(self, record: Record, calls: dict[str, Done]) -> None:
        recorded: set[tuple[str, str]] = set()
        for row in record.rows:
            if row.op != "native" or row.detail.get("kind") == "directory":
                continue
            self.rows += 1
            authors = sharers_of(record, row)
            self.shared += len(authors) > 1
            writers = _writers(record, row, calls)
            recorded |= {(call, row.path) for call in writers}
            if not writers <= authors:
                self.wrong.append(f"whose: row {row.seq} of {row.path} is of {authors}, not of {writers}")
            self._judge_precision(row, [calls[call] for call in authors if call in calls])
        for done in calls.values():
            missing = [path for path in done.wrote if (done.call, path) not in recorded]
            if missing:
                self.wrong.append(f"no loss: {done.call} wrote {missing}")

    def _judge_precision(self, row: RecordedRow, authors: list[Done]) -> None:
        if not authors:
            return
        begun, ended = max(one.begun for one in authors), min(one.ended for one in authors)
        if begun > ended:
            self.wrong.append(f"precise: row {row.seq} is of calls that were not open together")
        elsewhere = [one.call for one in authors if one.named and row.path not in one.named]
        if elsewhere and any(row.path in one.named for one in authors):
            self.wrong.append(f"precise: row {row.seq} of {row.path} is shared with {elsewhere}")

    def _undo_one(self, record: Record) -> None:
        """The calls of one agent, the newest first. One that collides with a later change must change nothing."""
        name = self.names[0]
        rows = [row for row in record.rows if (owner_of(record, row) or "").startswith(f"{name}-")]
        for change in reversed(dict.fromkeys(row.txn for row in rows)):
            of_change = [row for row in rows if row.txn == change]
            shared = {call for row in of_change for call in sharers_of(record, row)}
            before = read_tree(self.root)
            ended = self.client.command("undo", str(of_change[0].seq))
            after = read_tree(self.root)
            if json.loads(ended.out).get("conflicts"):
                if before != after:
                    self.wrong.append(f"apart: undo {of_change[0].seq} collides, and has changed something")
                continue
            self.undone += 1
            for path, (_, _, content) in before.items():
                lost = set(content.split()) - set(after.get(path, ("", 0, b""))[2].split())
                others = {line.decode() for line in lost} - shared
                if others:
                    self.wrong.append(f"apart: undo {of_change[0].seq} took {sorted(others)[:4]} from {path}")


def _writers(record: Record, row: RecordedRow, calls: dict[str, Done]) -> set[str]:
    """The calls whose lines a row brings, or that removed its file."""
    old = record.texts.get(row.old or "", b"").split(b"\n")
    new = record.texts.get(row.new or "", b"").split(b"\n")
    found = {line.decode() for line in set(new) if new.count(line) > old.count(line)}
    if row.new is None:
        found |= {done.call for done in calls.values() if row.path in done.removed}
    return found & calls.keys()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--folder", help="where the workspaces are made")
    parser.add_argument("--bug", default="", choices=("", *BUGS))
    options = parser.parse_args()
    failed = 0
    for number, (agents, is_resident) in enumerate([(2, False), (2, True), (4, False), (4, True)]):
        with tempfile.TemporaryDirectory(prefix="perdure-agents-", dir=options.folder) as folder:
            seed = options.seed + number
            team = Team(Path(folder), seed, agents=agents, is_resident=is_resident, bug=options.bug)
            team.run(options.rounds)
        where = "resident" if is_resident else "cold"
        counts = f"{options.rounds} calls, {team.rows} rows, {team.shared} shared, {team.undone} undone"
        print(f"{agents} agents, {where}, seed {seed}: {counts}, {len(team.wrong)} wrong", flush=True)
        for line in team.wrong[:8]:
            print(f"  {line}")
        failed += bool(team.wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
