"""A workload on the logged disk: from an image, through several lives of the writing process, to a log.

fuse/       the logged disk
fs/         the ext4 on it: `work` is the workspace, `home` Perdure's own folder, so that the anchor is cut as well
boot_id     stands over the kernel's: every recording and every recovery is another boot
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from harness.power import devices
from harness.power.devices import Unavailable
from harness.power.disk_log import DiskLog, Mark, Record
from harness.power.driver import Life, Rest
from harness.power.fuse_disk import LoggedDisk
from harness.power.weather import weather
from harness.power.workload import Lane
from perdure.worker.compose import Durability

LIFE_S: Final = 120
# Timer commits of ext4 every second instead of every five: a short workload meets some.
OPTIONS: Final = "commit=1"


class Failed(Exception):
    """The workload itself failed; nothing can be said about cuts."""


class Bench:
    """The directory in which everything of one process is mounted."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.fuse = os.path.join(base, "fuse")
        self.fs = os.path.join(base, "fs")
        self.workspace = os.path.join(self.fs, "work")
        self.home = os.path.join(self.fs, "home")
        self.store = os.path.join(self.workspace, "deep", "er", "state.db")

    def new_boot(self) -> None:
        with open(os.path.join(self.base, "boot_id"), "w") as file:
            file.write(f"{uuid.uuid4()}\n")


@contextmanager
def bench() -> Iterator[Bench]:
    """Only the empty directory is seen outside of this process and its children."""
    with tempfile.TemporaryDirectory(prefix="perdure-power-") as base:
        made = Bench(base)
        try:
            devices.enter_namespace()
            devices.mount("tmpfs", base, "tmpfs")
        except OSError as error:
            raise Unavailable(f"power cuts need to mount file systems: {error.strerror}") from None
        try:
            _prepare(made)
            yield made
        finally:
            devices.unmount(base)


def _prepare(bench: Bench) -> None:
    """Everything is done once with nothing in it, so that a machine that cannot do it is known before it matters."""
    try:
        for folder in (bench.fuse, bench.fs):
            os.mkdir(folder)
        bench.new_boot()
        devices.bind(os.path.join(bench.base, "boot_id"), "/proc/sys/kernel/random/boot_id")
        image = devices.fresh_image()
        with logged(bench, image, DiskLog()):
            pass
        os.close(image)
    except OSError as error:
        raise Unavailable(f"power cuts need FUSE, loop devices and ext4: {error.strerror}") from None


@contextmanager
def logged(bench: Bench, image: int, log: DiskLog) -> Iterator[None]:
    """The image mounted, with everything that is written to it in the log."""
    disk = LoggedDisk(image, log)
    disk.mount(bench.fuse)
    try:
        with devices.mounted(os.path.join(bench.fuse, "disk"), bench.fs, OPTIONS):
            yield
    finally:
        disk.unmount(bench.fuse)


def empty_workspace(bench: Bench) -> int:
    """An image with nothing but the workspace's folder."""
    image = devices.fresh_image()
    with devices.mounted(image, bench.fs):
        os.mkdir(bench.workspace)
    return image


class Plan(msgspec.Struct, frozen=True):
    durability: Durability
    lanes: list[Lane]
    lives: int
    seed: int
    broken: str | None = None
    is_state: bool = False


class Recording(msgspec.Struct, frozen=True):
    """`image` is the disk as it was `start` records into the log; those are what was said before."""

    image: int
    log: list[Record]
    start: int


def progress(lane: Lane, log: Sequence[Record]) -> tuple[int, bool]:
    """How many calls of a lane were acknowledged, and whether the next one was begun."""
    words = [record.text.split() for record in log if isinstance(record, Mark)]
    done = sum(word == "done" and name == lane.name for word, name, _ in words)
    return done, ["begin", lane.name, str(done)] in words


def record(bench: Bench, plan: Plan, image: int, before: Sequence[Mark] = ()) -> Recording:
    """Run the plan on a copy of the image, from where the marks before say that its lanes stand."""
    log = DiskLog(before)
    current = devices.copied(image)
    bench.new_boot()
    try:
        with logged(bench, current, log), weather(bench.fs, plan.seed):
            _live(bench, plan, log)
            written = log.records()
    finally:
        os.close(current)
        log.close()
    return Recording(image, written, len(before))


def _live(bench: Bench, plan: Plan, log: DiskLog) -> None:
    """Several lives, each with its share of what is left. All but the last may be killed on the way."""
    chance = random.Random(plan.seed)
    for left in range(plan.lives, 0, -1):
        written = log.records()
        ending = chance.choice(("close", "exit", "kill"))
        life = Life(
            bench.workspace,
            os.path.join(bench.fuse, "marks"),
            plan.durability,
            [_rest(lane, written, left) for lane in plan.lanes],
            "close" if ending == "close" else "exit",
            plan.broken,
            bench.store if plan.is_state else None,
        )
        _one_life(bench, life, f"*=kill@{chance.randint(40, 400)}" if ending == "kill" and left > 1 else "")


def _rest(lane: Lane, log: Sequence[Record], lives: int) -> Rest:
    done, _ = progress(lane, log)
    length = -(-(len(lane.steps) - done) // lives)
    return Rest(lane.name, done, lane.steps[done : done + length])


def _one_life(bench: Bench, life: Life, fault: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness.power.driver"],
        input=msgspec.json.encode(life),
        env={**os.environ, "PERDURE_HOME": bench.home, "PERDURE_FAULT": fault},
        stderr=subprocess.PIPE,
        timeout=LIFE_S,
    )
    if done.returncode != 0 and not (fault and done.returncode == -9):
        raise Failed(f"exit {done.returncode}: " + done.stderr.decode(errors="replace")[-2000:])
