"""Explore histories of sessions that share servers, or find each seeded bug with them.

python -m harness.serve [--histories 100000] [--seed N] [--jobs 2]
python -m harness.serve --mutants [--one NAME] [--most N]

Every prefix of a history is a history of its own, judged in full and counted once.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from array import array
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context

import msgspec

from harness.kernel.explore import Report, Totals, describe
from harness.kernel.histories import Tally
from harness.kernel.mutants import Verdict
from harness.serve.histories import SCOPE, shrink, wander
from harness.serve.seeded_bugs import BUGS

_BATCH = 40


def work(first: int) -> Report:
    logging.disable()
    tally = Tally(histories=set())
    for seed in range(first, first + _BATCH):
        wander(seed, tally)
        if tally.failure is not None:
            break
    failure = shrink(tally.failure) if tally.failure is not None else None
    return Report(SCOPE, array("Q", tally.histories).tobytes(), tally.ends, tally.steps, failure)


def explore(histories: int, seed: int, jobs: int) -> Totals:
    totals = Totals()
    first = seed * 1_000_000
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(work, first + number * _BATCH) for number in range(2 * jobs)}
        first += 2 * jobs * _BATCH
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                totals.add(future.result())
                if not totals.failures and len(totals.histories) < histories:
                    running.add(pool.submit(work, first))
                    first += _BATCH
    return totals


def hunt(name: str, most: int) -> Verdict:
    """Seed the bug into this process, for good, and explore."""
    logging.disable()
    BUGS[name].apply()
    began = time.monotonic()
    tally = Tally(histories=set())
    seed = 0
    while tally.failure is None and len(tally.histories) < most:
        wander(seed, tally)
        seed += 1
    verdict = Verdict(name, len(tally.histories))
    if tally.failure is not None:
        verdict.invariant, verdict.detail = tally.failure.invariant, tally.failure.detail
        verdict.actions = tally.failure.actions
    verdict.seconds = time.monotonic() - began
    return verdict


def hunt_apart(name: str, most: int) -> Verdict:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "harness.serve", "--one", name, "--most", str(most)]
    done = subprocess.run(command, capture_output=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"{name}: {done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Verdict)


def hunt_all(most: int, jobs: int) -> int:
    print(f"{'bug':60} | found after | invariant")
    survivors = 0
    with ThreadPoolExecutor(jobs) as pool:
        for verdict in pool.map(lambda name: hunt_apart(name, most), BUGS):
            survivors += not verdict.invariant
            print(
                f"{verdict.name:60} | {verdict.histories:11,} | {verdict.invariant or 'SURVIVES'}", flush=True
            )
    print(f"{len(BUGS) - survivors} of {len(BUGS)} found")
    return 1 if survivors else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="harness.serve", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=100_000, help="stop after this many distinct ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mutants", action="store_true", help="find every seeded bug")
    parser.add_argument("--one", choices=BUGS, help="only this bug, in this process, as JSON")
    parser.add_argument("--most", type=int, default=40_000, help="give a bug up after this many histories")
    options = parser.parse_args(arguments)
    if options.one:
        print(msgspec.json.encode(hunt(options.one, options.most)).decode())
        return 0
    if options.mutants:
        return hunt_all(options.most, options.jobs)
    began = time.monotonic()
    totals = explore(options.histories, options.seed, options.jobs)
    print(
        f"{len(totals.histories):,} distinct histories, {totals.ends:,} run to their end, {totals.steps:,} steps, "
        f"{len(totals.failures)} violations, {time.monotonic() - began:.1f} s"
    )
    for failure in totals.failures:
        print(describe(failure))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
