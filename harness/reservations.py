"""Agents race for overlapping paths and write: `python -m harness.reservations [--rounds N] [--agents N] [--seed N]`.

Each agent is a process, so that each is an owner. In a round all of them reserve, renew, release and write at random, by
the engine and by a hook of a client's own editing tool; some are killed, some are stopped for longer than their reservation
lasts. Each tells what it was answered and when. A write that was acknowledged, or that a hook let pass, while another owner
held its path from before the write began until after it was answered is a violation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.platform.process_tree import own_process
from perdure.protocol.calls import LocalCall
from perdure.protocol.envelope import ToolError
from perdure.storage.reservations import Mode
from perdure.surfaces.write.reserve import Reserve, reserve
from perdure.surfaces.write.write import SafeWrite, safe_write
from perdure.workspace.reservations.hook_answer import handle_event
from perdure.workspace.reservations.patterns import covers
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.workspace import Workspace

FILES: Final = ("src/a.py", "src/b.py", "src/deep/c.py", "docs/a.md", "d.py")
PATTERNS: Final = ("src", "src/*.py", "*.py", "src/**/c.py", "docs", "*.md", "d.py", "src/a.py")
STEPS: Final = 12
TTL_S: Final = 1
PAUSE_S: Final = 1.3
LATEST: Final = 500
"""What agents told lately: a reservation may outlast its round."""


class Granted(msgspec.Struct, kw_only=True):
    """A reservation as its owner saw it: from when it was answered until the owner gave it up, or it expired."""

    owner: int
    token: int
    paths: list[str]
    mode: Mode
    since: float
    until: float


class Write(msgspec.Struct, kw_only=True):
    owner: int
    path: str
    began: float
    answered: float
    by: str


class Told(msgspec.Struct):
    """What an agent tells of one round."""

    granted: list[Granted] = []
    released: dict[int, float] = {}
    renewed: dict[int, float] = {}
    writes: list[Write] = []
    refused: int = 0


# --- an agent -------------------------------------------------------------------------------------------------


class Agent:
    def __init__(self, workspace: Workspace, number: int) -> None:
        self._workspace = workspace
        self._number = number
        self._recorder = Recorder(workspace, TimelineSettings(enabled=False))
        self._call = LocalCall(f"agent-{number}", tool="reserve")
        self._call.process = own_process()

    def run(self, seed: int) -> Told:
        chance, told = random.Random(seed), Told()
        for _ in range(STEPS):
            getattr(self, chance.choice(("acquire", "release", "renew", "write", "write", "edit")))(
                chance, told
            )
        return told

    def acquire(self, chance: random.Random, told: Told) -> None:
        paths = chance.sample(PATTERNS, chance.randint(1, 2))
        mode: Mode = "exclusive" if chance.random() < 0.5 else "shared"
        request = Reserve(action="acquire", paths=paths, mode=mode, ttl_s=TTL_S)
        began = time.time()
        payload = reserve(self._workspace, request, self._call)
        if payload["status"] == "ok":
            told.granted.append(
                Granted(
                    owner=self._number,
                    token=payload["token"],
                    paths=paths,
                    mode=mode,
                    since=time.time(),
                    until=began + TTL_S,
                )
            )

    def release(self, chance: random.Random, told: Told) -> None:
        for granted in told.granted[-1:]:
            told.released.setdefault(granted.token, time.time())
            reserve(self._workspace, Reserve(action="release", token=granted.token), self._call)

    def renew(self, chance: random.Random, told: Told) -> None:
        for granted in told.granted[-1:]:
            began = time.time()
            request = Reserve(action="renew", token=granted.token, ttl_s=TTL_S)
            if reserve(self._workspace, request, self._call)["status"] == "ok":
                told.renewed[granted.token] = began + TTL_S

    def write(self, chance: random.Random, told: Told) -> None:
        path = chance.choice(FILES)
        request = SafeWrite(path=path, content=f"{time.time_ns()}\n", mode="append")
        self._call.tool = "safe_write"
        began = time.time()
        try:
            safe_write(self._workspace, request, self._call).result()
        except ToolError as error:
            if error.envelope.context.get("reason") != "reserved":
                raise
            told.refused += 1
            return
        finally:
            self._call.tool = "reserve"
        told.writes.append(self._wrote(path, began, "tool"))

    def edit(self, chance: random.Random, told: Told) -> None:
        """By the client's own tool, as far as its hook lets it."""
        path, root = chance.choice(FILES), self._workspace.roots[0].path
        event = HookEvent(
            client=self._call.client,
            kind="before_tool",
            session=self._call.session,
            cwd=root,
            process=self._call.process,
            tool="Write",
            call_id="1",
            paths=(os.path.join(root, path),),
        )
        began = time.time()
        if handle_event(self._workspace, self._recorder, event).refusal:
            told.refused += 1
        else:
            told.writes.append(self._wrote(path, began, "hook"))

    def _wrote(self, path: str, began: float, by: str) -> Write:
        return Write(owner=self._number, path=path, began=began, answered=time.time(), by=by)


def serve_rounds(root: str, number: int) -> None:
    """The process of an agent: a seed on each line of standard input, what it tells on standard output."""
    with closing(Workspace.open((root,))) as workspace:
        agent = Agent(workspace, number)
        print("ready", flush=True)
        for line in sys.stdin:
            print(msgspec.json.encode(agent.run(int(line))).decode(), flush=True)


# --- the trial --------------------------------------------------------------------------------------------------


class AgentProcess:
    def __init__(self, root: Path, number: int) -> None:
        self._root, self._number = root, number
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.reservations", "--agent", str(self._root), str(self._number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run(self, seed: int, *, pauses: bool) -> Told:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(seed, file=self._process.stdin, flush=True)
        if pauses:
            time.sleep(0.01)
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            self._process.send_signal(signal.SIGCONT)
        return msgspec.json.decode(self._process.stdout.readline(), type=Told)

    def kill(self) -> None:
        """Its reservations end with it."""
        self._process.kill()
        self._process.communicate()
        self._start()

    def close(self) -> None:
        self._process.communicate()


def find_violations(told: list[Told], lately: list[Told]) -> Iterator[str]:
    """Of the writes of a round. `lately` is what was told since the oldest reservation that may be in force began."""
    released: dict[int, float] = {}
    for token, at in (pair for one in lately for pair in one.released.items()):
        released[token] = min(at, released.get(token, at))
    renewed = {token: until for one in lately for token, until in one.renewed.items()}
    granted = [one for each in lately for one in each.granted]
    for write in (write for each in told for write in each.writes):
        for one in granted:
            until = min(renewed.get(one.token, one.until), released.get(one.token, float("inf")))
            holds = one.since < write.began and write.answered < until
            if one.owner == write.owner or not holds or not any(covers(p, write.path) for p in one.paths):
                continue
            if one.mode == "shared" and _shares(write, granted):
                continue
            yield f"{write} while {one}"


def granted_to(number: int, told: list[Told]) -> list[Granted]:
    return [one for each in told for one in each.granted if one.owner == number]


def _shares(write: Write, granted: list[Granted]) -> bool:
    """Whether the writer may have held a reservation of its own: it was granted before the write was answered."""
    return any(
        one.owner == write.owner
        and one.since < write.answered
        and any(covers(p, write.path) for p in one.paths)
        for one in granted
    )


def run_trial(rounds: int, agents: int, seed: int) -> dict[str, Any]:
    """How many rounds, writes and refusals there were, and the violations."""
    chance = random.Random(seed)
    totals: dict[str, Any] = {
        "rounds": 0,
        "granted": 0,
        "writes": 0,
        "refused": 0,
        "kills": 0,
        "violations": [],
    }
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(agents) as pool:
        os.environ["PERDURE_HOME"] = str(Path(folder) / "home")
        root = Path(folder) / "work"
        root.mkdir()
        history: list[Told] = []
        processes = [AgentProcess(root, number) for number in range(agents)]
        try:
            for _ in range(rounds):
                taking_part = chance.sample(processes, chance.randint(2, agents))
                paused = chance.choice(taking_part) if chance.random() < 0.05 else None
                seeds = [chance.getrandbits(32) for _ in taking_part]
                told = list(
                    pool.map(
                        lambda process, number, paused=paused: process.run(number, pauses=process is paused),
                        taking_part,
                        seeds,
                    )
                )
                totals["rounds"] += 1
                for name in ("granted", "writes"):
                    totals[name] += sum(len(getattr(one, name)) for one in told)
                totals["refused"] += sum(one.refused for one in told)
                history = [*history, *told][-LATEST:]
                totals["violations"] += find_violations(told, history)
                if chance.random() < 0.1:
                    number = chance.randrange(agents)
                    ended = Told(released={one.token: time.time() for one in granted_to(number, history)})
                    processes[number].kill()
                    history.append(ended)
                    totals["kills"] += 1
        finally:
            for process in processes:
                process.close()
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--agent", nargs=2, metavar=("FOLDER", "NUMBER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent is not None:
        serve_rounds(options.agent[0], int(options.agent[1]))
        return 0
    print(f"seed {options.seed}")
    totals = run_trial(options.rounds, options.agents, options.seed)
    print(json.dumps(totals, indent=1))
    return 1 if totals["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
