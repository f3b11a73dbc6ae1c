"""Explore histories of the kernel: every one in small scopes, then random ones, and the shortest that fails.

python -m harness.kernel.explore --histories 1000000 [--seed N] [--jobs 2] [--seconds N]

A history is a sequence of actions from the start of its scope; every prefix of one is a history of its
own, checked in full. Histories are counted once, by the hash of scope and actions. The histories that
are run to their end are counted as `ends`.
"""

from __future__ import annotations

import argparse
import sys
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context

import msgspec

from harness.kernel.histories import Failure, Tally, exhaust, shrink, wander
from harness.kernel.scopes import EXHAUSTIVE, RANDOM, Scope

_SHARES = 16
_BATCH = 40  # random histories per task: small enough to stop in time, large enough to be worth sending


class Task(msgspec.Struct, frozen=True):
    """A piece of work for one process: a share of a scope, or a range of seeds."""

    scope: Scope
    first: int
    count: int = 0
    shares: int = 1


class Report(msgspec.Struct):
    scope: str
    digests: bytes
    ends: int
    steps: int
    failure: Failure | None = None


def work(task: Task) -> Report:
    tally = Tally()
    if task.count == 0:
        exhaust(task.scope, tally, task.first, task.shares)
    else:
        for seed in range(task.first, task.first + task.count):
            wander(task.scope, seed, tally)
            if tally.failure is not None:
                break
    found = tally.failure
    if found is not None:
        found = shrink(task.scope, found)
    return Report(task.scope.name, array("Q", tally.histories).tobytes(), tally.ends, tally.steps, found)


def tasks(seed: int) -> Iterator[Task]:
    """Shares of the exhaustive scopes and batches of random histories in turn, then random ones for ever."""
    small = (Task(scope, share, shares=_SHARES) for share in range(_SHARES) for scope in EXHAUSTIVE)
    first = seed * 1_000_000
    while True:
        for scope in RANDOM:
            yield from islice(small, 1)
            yield Task(scope, first, _BATCH)
        first += _BATCH


class Totals:
    """What all processes found together; a history that two of them met counts once."""

    def __init__(self) -> None:
        self.histories: set[int] = set()
        self.by_scope: dict[str, int] = {}
        self.ends = 0
        self.steps = 0
        self.failures: list[Failure] = []

    def add(self, report: Report) -> None:
        before = len(self.histories)
        digests = array("Q")
        digests.frombytes(report.digests)
        self.histories.update(digests)
        fresh = len(self.histories) - before
        self.by_scope[report.scope] = self.by_scope.get(report.scope, 0) + fresh
        self.ends += report.ends
        self.steps += report.steps
        if report.failure is not None:
            self.failures.append(report.failure)


def explore(histories: int, seed: int, jobs: int, seconds: float) -> Totals:
    totals = Totals()
    until = time.monotonic() + seconds
    source = tasks(seed)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(work, task) for task in islice(source, 2 * jobs)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                totals.add(future.result())
            enough = totals.failures or len(totals.histories) >= histories or time.monotonic() >= until
            if not enough:
                running |= {pool.submit(work, task) for task in islice(source, len(done))}
    return totals


def describe(failure: Failure) -> str:
    lines = [f"violation of {failure.invariant} in {failure.scope}", f"  {failure.detail}"]
    lines += [f"  {number:3} {action}" for number, action in enumerate(failure.actions, 1)]
    if failure.ending:
        lines.append(f"      … then run to its end, servers {failure.ending}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="harness.kernel.explore", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--histories", type=int, default=100_000, help="stop after this many distinct ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    totals = explore(options.histories, options.seed, options.jobs, options.seconds)
    for scope, count in totals.by_scope.items():
        print(f"{scope:55} {count:9,}")
    print(
        f"{len(totals.histories):,} distinct histories, {totals.ends:,} run to their end, {totals.steps:,} steps, "
        f"{len(totals.failures)} violations, {time.monotonic() - began:.1f} s"
    )
    for failure in totals.failures:
        print(describe(failure))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
