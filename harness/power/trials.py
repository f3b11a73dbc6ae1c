"""Many cuts of one recording, each mounted, recovered and judged, in several processes."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from harness.power import devices
from harness.power.cuts import Cut, Disk, choose
from harness.power.disk_log import Mark
from harness.power.recording import OPTIONS, Bench, Failed, Plan, Recording, record
from harness.power.state_lanes import judge_state
from harness.power.verdict import Finding, judge

STATE_S: Final = 60
EXAMPLES: Final = 20
UNMOUNTED: Final = "unmounted"
FEW: Final = 0.01
"""Of all states; where more cannot be mounted, something else is wrong than the file system's own luck."""


class Tally(msgspec.Struct):
    states: int = 0
    acknowledged: int = 0
    findings: dict[str, int] = {}
    examples: list[str] = []

    @property
    def losses(self) -> int:
        """States in which something acknowledged is gone."""
        return self.findings.get("lost", 0)

    @property
    def is_clean(self) -> bool:
        """Nothing of ours is wrong in any state that could be looked at, and nearly all could."""
        unmounted = self.findings.get(UNMOUNTED, 0)
        return set(self.findings) <= {UNMOUNTED} and unmounted <= FEW * self.states

    def add(self, other: Tally) -> None:
        self.states += other.states
        self.acknowledged += other.acknowledged
        self._count(other.findings)
        self.examples = (self.examples + other.examples)[:EXAMPLES]

    def judged(self, cut: Cut, acknowledged: int, found: Sequence[Finding]) -> None:
        self.states += 1
        self.acknowledged += acknowledged
        self._count(dict.fromkeys((finding.kind for finding in found), 1))
        where = f"cut at {cut.position}, flushed {cut.flushed}, kept {len(cut.kept)}"
        self.examples += [f"{where}: {one.kind}: {one.detail}" for one in found][
            : EXAMPLES - len(self.examples)
        ]

    def _count(self, more: dict[str, int]) -> None:
        for kind, count in more.items():
            self.findings[kind] = self.findings.get(kind, 0) + count

    def __str__(self) -> str:
        others = [f"{kind} {count:,}" for kind, count in sorted(self.findings.items()) if kind != "lost"]
        looked = f"{self.states:,} states  {self.acknowledged:,} acknowledged calls looked for"
        return "  ".join((looked, f"lost {self.losses:,}", *others))


def tried(bench: Bench, plan: Plan, recording: Recording, states: int, jobs: int) -> Tally:
    """Judge so many states of the disk, in another boot than the one in which it was written."""
    bench.new_boot()
    cuts = choose(recording.log, states, plan.seed, recording.start)
    tally = Tally()
    children = dict(_start(bench, plan, recording, cuts[n::jobs]) for n in range(jobs))
    try:
        for pipe in children.values():
            said = b"".join(iter(lambda: os.read(pipe, 1 << 16), b""))  # noqa: B023
            if not said:
                raise Failed("a judge failed")
            tally.add(msgspec.json.decode(said, type=Tally))
    finally:
        for pid, pipe in children.items():
            os.close(pipe)
            os.kill(pid, signal.SIGKILL)  # one that has ended waits to be asked, so it is still itself
            os.waitpid(pid, 0)
    return tally


def _start(bench: Bench, plan: Plan, recording: Recording, cuts: list[Cut]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        devices.die_with_parent()
        devices.enter_namespace()
        os.environ["PERDURE_HOME"] = bench.home
        with os.fdopen(writing, "wb") as file:
            file.write(msgspec.json.encode(_judged(bench, plan, recording, cuts)))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _judged(bench: Bench, plan: Plan, recording: Recording, cuts: list[Cut]) -> Tally:
    tally = Tally()
    signal.signal(signal.SIGALRM, _too_long)
    disk = Disk(recording.image, recording.log)
    for cut in cuts:
        told = [one for one in recording.log[: cut.position] if isinstance(one, Mark)]
        image = disk.at(cut)
        signal.alarm(STATE_S)
        try:
            with devices.mounted(image, bench.fs, OPTIONS):
                if plan.is_state:
                    found = judge_state(bench.store, plan.lanes, told)
                else:
                    found = judge(bench.workspace, plan.durability, plan.lanes, told)
        except devices.Unmountable as error:
            found = [Finding(UNMOUNTED, str(error))]
        except Exception as error:
            found = [Finding("closed", f"{type(error).__name__}: {error}")]
        finally:
            signal.alarm(0)
            os.close(image)
        tally.judged(cut, sum(one.text.startswith("done") for one in told), found)
    disk.close()
    return tally


def _too_long(*_: Any) -> None:
    raise TimeoutError("a state was not judged in time")


def again(bench: Bench, plan: Plan, recording: Recording, seed: int) -> Recording:
    """Go on from a state in which the power was cut, on a logged disk: recovery, and the rest of the calls."""
    chance = random.Random(seed)
    cut = chance.choice(choose(recording.log, 50, seed, recording.start))
    disk = Disk(recording.image, recording.log)
    try:
        image = disk.at(cut)
    finally:
        disk.close()
    told = [one for one in recording.log[: cut.position] if isinstance(one, Mark)]
    return record(bench, plan, image, told)
