"""The trial: agents in processes of their own run rounds at the same time. Some are killed, some are stopped for longer than
their reservation lasts, and the PostgreSQL server is restarted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from harness.reservations.agent import COLLECT, AgentSettings
from harness.reservations.laws import OwnersToTell, find_violations
from harness.reservations.report import Told
from harness.state.postgres import Postgres, running_postgres

Store = Literal["workspace", "sqlite", "postgres"]
"""Where the reservations are: in the journal of one workspace, or in a state store for two clones."""
PAUSE_S: Final = 1.3
LATEST: Final = 300
"""How many reports are looked at: a reservation may outlast its round."""


class AgentProcess:
    def __init__(self, settings: AgentSettings, home: str) -> None:
        self._settings, self._home = settings, home
        self._start()

    def _start(self) -> None:
        given = msgspec.json.encode(self._settings).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.reservations", "--agent", given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PERDURE_HOME": self._home},
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


class Trial:
    def __init__(self, agents: list[AgentProcess], seed: int, shell: str, server: Postgres | None) -> None:
        self._agents = agents
        self._chance = random.Random(seed)
        self._shell = shell
        self._server = server
        self._history: list[Told] = []
        self._owners = OwnersToTell()
        counts = dict.fromkeys(
            ("rounds", "granted", "writes", "shell", "refused", "unreachable", "kills", "restarts"), 0
        )
        self.totals: dict[str, Any] = {**counts, "violations": []}

    def run(self, rounds: int) -> dict[str, Any]:
        with ThreadPoolExecutor(len(self._agents) + 1) as pool:
            for _ in range(rounds):
                taking_part = self._chance.sample(
                    range(len(self._agents)), self._chance.randint(2, len(self._agents))
                )
                restart = pool.submit(self._restart) if self._chance.random() < 0.02 else None
                self._round(pool, taking_part)
                if restart is not None:
                    restart.result()
                if self._chance.random() < 0.1:
                    self._kill()
        self._owners.add([agent.run(COLLECT, pauses=False) for agent in self._agents], self._history)
        self.totals["violations"] += self._owners.violations()
        return self.totals

    def _round(self, pool: ThreadPoolExecutor, numbers: list[int]) -> None:
        paused = self._chance.choice(numbers) if self._chance.random() < 0.05 else None
        seeds = [self._chance.getrandbits(32) for _ in numbers]
        running = [
            pool.submit(self._agents[number].run, seed, pauses=number == paused)
            for number, seed in zip(numbers, seeds, strict=True)
        ]
        told = [one.result() for one in running]
        totals = self.totals
        totals["rounds"] += 1
        for one in told:
            totals["granted"] += len(one.granted)
            totals["writes"] += len(one.writes)
            totals["shell"] += sum(write.by == "shell" for write in one.writes)
            totals["refused"] += one.refused
            totals["unreachable"] += one.unreachable
        self._history = [*self._history, *told][-LATEST:]
        totals["violations"] += find_violations(told, self._history, self._shell)
        self._owners.add(told, self._history)

    def _kill(self) -> None:
        number = self._chance.randrange(len(self._agents))
        tokens = [one.token for told in self._history for one in told.granted if one.owner == number]
        self._history.append(Told(released=dict.fromkeys(tokens, time.time())))
        self._agents[number].kill()
        self._owners.forget(number)
        self.totals["kills"] += 1

    def _restart(self) -> None:
        if self._server is not None and self._server.is_ours:
            self._server.restart()
            self.totals["restarts"] += 1


def run_trial(
    rounds: int, agents: int, seed: int, store: Store = "workspace", shell: str = "tell", bug: str = ""
) -> dict[str, Any]:
    """How many rounds, writes and refusals there were, and the violations."""
    with _prepared(store) as (roots, state, server, folder), ExitStack() as opened:
        processes = []
        for number in range(agents):
            settings = AgentSettings(str(roots[number % len(roots)]), number, shell, state, bug)
            home = str(folder / f"home-{number % len(roots)}")
            processes.append(AgentProcess(settings, home))
            opened.callback(processes[-1].close)
        return Trial(processes, seed, shell, server).run(rounds)


@contextmanager
def _prepared(store: Store) -> Iterator[tuple[list[Path], str | None, Postgres | None, Path]]:
    """The workspaces, the state store, its server, and a folder for the rest."""
    with tempfile.TemporaryDirectory(prefix="perdure-reservations-") as name, ExitStack() as opened:
        folder = Path(name)
        origin = folder / "work"
        origin.mkdir()
        if store == "workspace":
            yield [origin], None, None, folder
            return
        _git(origin, "init", "-q")
        _git(origin, "commit", "-qm", "first", "--allow-empty")
        clones = [folder / "one", folder / "two"]
        for clone in clones:
            _git(folder, "clone", "-q", str(origin), clone.name)
        if store == "sqlite":
            yield clones, str(folder / "state.db"), None, folder
            return
        server = opened.enter_context(running_postgres())
        yield clones, server.new_database(), server, folder


def _git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=trial", "-c", "user.email=trial@example.org"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)
