"""A storm: `kill -9` at random moments with calls in flight, and a check of every promise afterwards.

    python -m harness.host.storm --rounds 1000 [--seed N] [--in-flight 8]
    python -m harness.host.storm --kill host --rounds 50

Through one session of `perdure run`, each round sends calls of every replay class to a mounted fake server
and kills, alternately, that server or the built-in worker. Whatever was killed:

| promise | how it is checked |
|---|---|
| one answer per call | the client keeps every response |
| no unauthorized replay | the server's ledger of calls that arrived |
| a success really happened | the server's ledger of effects, by process |
| an error is honest | `not_started` never arrived; `unknown` arrived at most as often as it was sent |
| nothing is left behind | processes, descriptors and memory before and after |

With `--kill host` the host itself is killed, in each round another one, and nothing it started may outlive it
by two seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.processes import MARK, descriptors, marked, rss_kb, wait_for
from harness.user_settings import user_settings
from perdure.testing import fake_server
from perdure.testing.fake_ledger import lines
from perdure.testing.raw_client import Ended, Object, RawClient, RequestId

REPLAYS: Final = 1
ANSWER_S: Final = 20.0
GONE_S: Final = 2.0
RSS_KB: Final = 8 * 1024
WARM_ROUNDS: Final = 20

_LIMITS: Final = f"""\
[limits]
replays = {REPLAYS}
restarts_per_minute = 1000000
unproductive_starts = 1000000
backoff_s = 0.01
backoff_max_s = 0.05
"""
_FULL: Final = {"render": "json", "detail": "full"}

# How often a call may arrive: without an annotation once; declared repeatable, once more per replay.
_ARRIVALS: Final = {
    "effect": 1,
    "slow": 1,
    "echo": 1 + REPLAYS,
    "read_effect": 1 + REPLAYS,
    "idem_effect": 1 + REPLAYS,
}
_EFFECTS: Final = frozenset({"effect", "read_effect", "idem_effect"})
_MIX: Final = ("effect", "effect", "slow", "echo", "read_effect", "read_effect", "idem_effect", "idem_effect")
_RECORD: Final = re.compile(r"(read_effect|idem_effect|effect|slow|echo) (k\d{6}|alive)( pid=\d+)?$")
_CRASHES: Final = ("before", "during", "after", "after_answer")


@dataclass(frozen=True)
class Sent:
    """A call as it was asked; its key names it in the server's ledgers."""

    tool: str
    key: str
    id: RequestId
    is_disturbed: bool


@dataclass
class Score:
    """What happened, and what should not have."""

    counts: Counter[str] = field(default_factory=Counter)
    figures: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def blame(self, what: str) -> None:
        self.violations.append(what)

    def show(self) -> None:
        rows = {**{name: f"{count:,}" for name, count in sorted(self.counts.items())}, **self.figures}
        width = max(map(len, rows), default=0)
        for name, value in rows.items():
            print(f"  {name:<{width}}  {value}")
        for what in self.violations[:20]:
            print(f"  VIOLATION  {what}")
        print(f"  {'violations':<{width}}  {len(self.violations)}")


class Place:
    """A workspace, a home and ledgers of one storm, and how a host is started there."""

    def __init__(self, root: Path, mark: str) -> None:
        self.mark = mark
        self._workspace = root / "workspace"
        self._workspace.mkdir()
        self.effects, self.dispatches, self._state = (
            str(root / n) for n in ("effects", "dispatches", "state")
        )
        self._environ = {
            **os.environ,
            MARK: mark,
            "PERDURE_HOME": str(root / "home"),
            **user_settings(root, _LIMITS),
        }

    def start(self) -> RawClient:
        fake = [
            *(sys.executable, "-S", fake_server.__file__),
            *("--effects", self.effects, "--dispatches", self.dispatches, "--state", self._state),
        ]
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self._workspace)]
        mount = ("--mount", f"fake={shlex.join(fake)}", "--mount-env", f"fake={MARK}")
        return RawClient([*command, *mount], env=self._environ)


# --- killing what stands behind the host -------------------------------------------------------------------


class Storm:
    def __init__(self, place: Place, rng: random.Random, in_flight: int) -> None:
        self.score = Score()
        self.sent: list[Sent] = []
        self._place = place
        self._rng = rng
        self._in_flight = in_flight
        self._client = place.start()

    def run(self, rounds: int) -> Score:
        started = time.monotonic()
        try:
            self._client.initialize()
            for _ in range(min(WARM_ROUNDS, rounds)):
                self._round("fake")
            before = self._size()
            for number in range(rounds):
                self._round("worker" if number % 2 else "fake")
            self._compare(before, self._size())
        except (Ended, TimeoutError) as error:
            self.score.blame(f"the session did not hold: {error}")
        finally:
            self._end()
        self._check_answers()
        self.score.figures["seconds"] = f"{time.monotonic() - started:.1f}"
        return self.score

    def _round(self, victim: str) -> None:
        """Calls in flight, a kill at any moment from before the first to after the last, every answer."""
        dies_itself = victim == "fake" and self._rng.random() < 0.3
        calls = [self._start(victim == "fake", crash=dies_itself and n == 0) for n in range(self._in_flight)]
        if not dies_itself:
            time.sleep(self._rng.choice((0.0, 0.002, self._rng.uniform(0, 0.03))))
            self._kill(victim)
            if self._rng.random() < 0.15:
                self._kill(victim)  # its successor too, while it starts
        self.score.counts[f"rounds, {victim} killed"] += 1
        for call in calls:
            self._client.wait(call.id, ANSWER_S)
        alive = self._client.call("fake__echo", {"key": "alive", "text": "here"}, ANSWER_S)
        if "result" not in alive:
            self.score.blame(f"the next call failed: {alive}")

    def _start(self, is_disturbed: bool, *, crash: bool) -> Sent:
        rng = self._rng
        tool = rng.choice(sorted(_EFFECTS)) if crash else rng.choice(_MIX)
        key = f"k{len(self.sent):06}"
        arguments: Object = {"key": key}
        if tool == "slow":
            arguments["ms"] = rng.randrange(30)
        elif tool == "echo":
            arguments["text"] = key
        else:
            arguments[rng.choice(("delay_ms", "linger_ms"))] = rng.randrange(25)
        if crash:
            arguments |= {"crash": rng.choice(_CRASHES), "times": 1}
        call = Sent(tool, key, self._client.start_call(f"fake__{tool}", arguments), is_disturbed)
        self.sent.append(call)
        return call

    def _kill(self, victim: str) -> None:
        name = "perdure" if victim == "worker" else victim
        health = self._client.call("health", _FULL, ANSWER_S)["result"]["structuredContent"]
        row = next(row for row in health["mounts"] if row["name"] == name)
        if "pid" in row:
            try:
                os.kill(row["pid"], signal.SIGKILL)
                self.score.counts["kills"] += 1
            except ProcessLookupError:
                pass

    # What is left behind

    def _size(self) -> tuple[int, int]:
        """Descriptors and memory of the host when every server is up again."""

        def is_settled() -> bool:
            health = self._client.call("health", _FULL, ANSWER_S)["result"]["structuredContent"]
            return all(row["state"] == "ready" for row in health["mounts"])

        if not wait_for(is_settled, ANSWER_S):
            self.score.blame("the servers did not all come back")
        expected = 4  # the host, its guardian, the worker, the fake
        if not wait_for(lambda: len(marked(self._place.mark)) == expected, GONE_S):
            self.score.blame(f"processes while running: {marked(self._place.mark)}, expected {expected}")
        return descriptors(self._client.pid), rss_kb(self._client.pid)

    def _compare(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        self.score.figures["descriptors of the host"] = f"{before[0]} -> {after[0]}"
        self.score.figures["memory of the host"] = f"{before[1] / 1024:.1f} -> {after[1] / 1024:.1f} MB"
        if after[0] > before[0]:
            self.score.blame(f"descriptors leaked: {before[0]} -> {after[0]}")
        if after[1] > before[1] + RSS_KB:
            self.score.blame(f"memory grew: {before[1]} -> {after[1]} kB")

    def _end(self) -> None:
        if self._client.process.poll() is not None:
            self.score.blame(f"the host ended by itself: {self._client.stderr[-2000:]}")
        else:
            try:
                if (code := self._client.close()) != 0:
                    self.score.blame(f"the host ended with {code}")
            except TimeoutError as error:
                self.score.blame(str(error))
        if not wait_for(lambda: not marked(self._place.mark), GONE_S):
            self.score.blame(f"processes left behind: {marked(self._place.mark)}")
        if self._client.noise or self._client.strays:
            self.score.blame(f"not for the client: {[*self._client.noise, *self._client.strays][:3]}")

    # Every answer against the ledgers

    def _check_answers(self) -> None:
        arrived = Counter(self._records(self._place.dispatches))
        performed = Counter(self._records(self._place.effects))
        for call in self.sent:
            answers = self._client.answers.get(call.id, [])
            times = arrived[f"{call.tool} {call.key}"]
            name = f"{call.tool} {call.key}"
            if len(answers) != 1:
                self.score.blame(f"{name} was answered {len(answers)} times")
            if times > _ARRIVALS[call.tool]:
                self.score.blame(f"{name} arrived {times} times")
            self.score.counts["arrived twice by replay"] += times > 1
            for answer in answers:
                if "result" in answer:
                    self.score.counts["answered with a result"] += 1
                    self._check_success(call, answer["result"], times, performed)
                else:
                    self._check_error(call, answer["error"], times)

    def _records(self, path: str) -> Iterator[str]:
        """The lines of a ledger. A server killed while it wrote across a page leaves half of one before the next."""
        for line in lines(path):
            found = _RECORD.search(line)
            self.score.counts["torn lines in the ledgers"] += found is None or found.start() > 0
            if found is not None:
                yield found.group()

    def _check_success(self, call: Sent, result: Object, arrived: int, performed: Counter[str]) -> None:
        if arrived < 1:
            self.score.blame(f"{call.tool} {call.key} succeeded but never arrived")
        if call.tool in _EFFECTS:
            line = f"{call.tool} {call.key} pid={result['structuredContent']['pid']}"
            if performed[line] != 1:
                self.score.blame(f"{line} was answered, and performed {performed[line]} times")

    def _check_error(self, call: Sent, error: Object, arrived: int) -> None:
        name, data = f"{call.tool} {call.key}", error.get("data") or {}
        self.score.counts[f"answered as {data.get('outcome', 'nothing')}"] += 1
        match data.get("outcome"):
            case "not_started":
                if arrived or data["attempts"]:
                    self.score.blame(f"{name} arrived {arrived} times but was said not to be started")
            case "unknown":
                if arrived > data["attempts"] or not 1 <= data["attempts"] <= _ARRIVALS[call.tool]:
                    self.score.blame(f"{name} arrived {arrived} times, {data['attempts']} were owned up to")
            case _:
                self.score.blame(f"{name} was answered with {error}")
        if not call.is_disturbed:
            self.score.blame(f"{name} was not on the killed server, but failed: {error}")


# --- killing the host ---------------------------------------------------------------------------------------


def kill_hosts(place: Place, rng: random.Random, rounds: int, in_flight: int) -> Score:
    score = Score()
    longest = 0.0
    for _ in range(rounds):
        client = place.start()
        try:
            if rng.random() < 0.2:
                time.sleep(rng.uniform(0, 0.2))  # while it starts
            else:
                client.initialize()
                client.call("fake__grandchild", {"seconds": 60})
                for _ in range(in_flight):
                    client.start_call("fake__slow", {"ms": 60_000})
                time.sleep(rng.uniform(0, 0.02))
        finally:
            client.kill()
        killed = time.monotonic()
        if not wait_for(lambda: not marked(place.mark), GONE_S):
            score.blame(f"processes outlived the host: {marked(place.mark)}")
        longest = max(longest, time.monotonic() - killed)
        score.counts["hosts killed"] += 1
    score.figures["longest outlived"] = f"{longest * 1000:.0f} ms"
    return score


# --- the command ----------------------------------------------------------------------------------------------


def run(rounds: int, *, seed: int, in_flight: int = 8, kill: str = "children") -> Score:
    """One storm in a temporary directory of its own."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="perdure-storm-") as folder:
        place = Place(Path(folder), f"storm-{os.getpid()}-{seed}")
        if kill == "host":
            return kill_hosts(place, rng, rounds, in_flight)
        return Storm(place, rng, in_flight).run(rounds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="storm", description="kill -9 at random moments, every promise checked."
    )
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="repeat a storm: random")
    parser.add_argument("--in-flight", type=int, default=8, metavar="N", help="calls in flight: 8")
    parser.add_argument(
        "--kill", choices=("children", "host"), default="children", help="whom: the servers behind the host"
    )
    options = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"storm  rounds {options.rounds}  in flight {options.in_flight}  kill {options.kill}  seed {seed}")
    score = run(options.rounds, seed=seed, in_flight=options.in_flight, kill=options.kill)
    score.show()
    return 1 if score.violations else 0


if __name__ == "__main__":
    sys.exit(main())
