"""Writes under `kill -9`: worker, host and both die at named fault points and at random, and nothing said is untrue.

    python -m harness.crash.write_storm --kills 10000 [--seed N] [--seconds S]
    python -m harness.crash.write_storm --seed N --kills 10000 --session 17      one of its sessions again
    python -m harness.crash.write_storm --broken NAME --kills 200                a seeded bug, to be found

Several sessions run at a time, each in a process and a folder of its own (`harness.crash`). After the last
kill of a session, recovery is killed, too; then a clean worker recovers, and the judge compares journal, disk and
answers. More than half of the kills go through a host with a client.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from typing import Final

import msgspec

from harness.crash.lane import run
from harness.crash.plan import RANDOM, Kind, Plan, Victim, plan, reachable, unreached
from harness.crash.seeded_bugs import BUGS, seeded
from harness.crash.session import Outcome
from harness.progress import progress

FULL: Final = 5000
"""From so many kills on, every point that can be reached must have been."""
VICTIMS: Final[tuple[Victim, ...]] = ("worker", "host", "both", "bare")
FATES: Final = ("done", "refused", "unknown", "not_started", "unanswered")
_SHOWN: Final = 12


class Tally(msgspec.Struct):
    """What a storm came to."""

    alone: bool
    kills: Counter[tuple[Victim, str]]
    counts: Counter[str]
    sessions: Counter[str]
    violated: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.kills.update(outcome.kills)
        self.counts.update(outcome.counts)
        self.sessions[outcome.plan.kind] += 1
        if outcome.violations:
            self.violated.append(outcome)

    def killed(self, victim: Victim) -> int:
        return sum(n for (one, _), n in self.kills.items() if one == victim)

    def missed(self) -> list[str]:
        """Points that can be reached, and at which nobody was killed."""
        at = {point for _, point in self.kills}
        return [point for point in reachable(alone=self.alone) if point not in at]

    @property
    def violations(self) -> list[str]:
        return [violation for outcome in self.violated for violation in outcome.violations]


def storm(
    kills: int,
    seed: int,
    seconds: float = float("inf"),
    *,
    lanes: int = 0,
    only: Kind | None = None,
    most_kills: int = 0,
    session: int | None = None,
    company: bool | None = None,
    broken: str = "",
    hear: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Sessions of at most `most_kills` until there were so many, or something is wrong, or time is up.

    `only`, `company` as for a plan; `session` is the number of the only one; `broken` the name of a seeded bug; `hear` is
    told what it came to so far after each session.
    """
    most = most_kills or max(4, kills // 6)
    numbers = count() if session is None else (session,)
    plans = (plan(seed, number, most_kills=most, only=only, company=company) for number in numbers)
    tally = Tally(company is False, Counter(), Counter(), Counter())
    with seeded(broken):
        _run_all(tally, plans, kills, time.monotonic() + seconds, lanes or 2 * (os.cpu_count() or 1), hear)
    return tally


def _run_all(
    tally: Tally,
    plans: Iterator[Plan],
    kills: int,
    until: float,
    lanes: int,
    hear: Callable[[Tally], None],
) -> None:
    # Not forked: a session forks by itself, and must find itself alone in its process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(lanes, mp_context=context) as pool:
        running: dict[Future[Outcome], Plan] = {}
        while True:
            expected = tally.kills.total() + sum(one.kills for one in running.values())
            is_wanted = expected < kills and not tally.violated and time.monotonic() < until
            if is_wanted and len(running) < lanes and (chosen := next(plans, None)) is not None:
                running[pool.submit(run, chosen)] = chosen
                continue
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                del running[done]
                tally.add(done.result())
                hear(tally)


# --- the command --------------------------------------------------------------------------------------------


def show(tally: Tally, seconds: float) -> None:
    total = tally.kills.total()
    sessions = "  ".join(f"{kind} {n}" for kind, n in sorted(tally.sessions.items()))
    print(f"kills {total:,}  in {seconds:.0f} s, {total / seconds:.1f} per second; sessions: {sessions}")
    print("  ".join(f"{victim} {tally.killed(victim):,}" for victim in VICTIMS))
    print("  ".join(f"{name} {tally.counts[name]:,}" for name in ("calls", *FATES, "foreign edits")))
    print(f"{'killed at':26}" + "".join(f"{victim:>8}" for victim in VICTIMS))
    for point in (*reachable(alone=tally.alone), RANDOM):
        print(f"{point:26}" + "".join(f"{tally.kills[victim, point]:8,}" for victim in VICTIMS))
    for point, reason in unreached(alone=tally.alone).items():
        print(f"{point:26}  not reached: {reason}")
    for point in tally.missed():
        print(f"{point:26}  NOBODY WAS KILLED HERE")


def show_violations(tally: Tally, options: argparse.Namespace) -> None:
    print(f"violations {len(tally.violations)}")
    for outcome in tally.violated:
        print(f"{outcome.plan}\n  kept in {outcome.folder}, with its history")
        alone = " --alone" if options.alone else ""
        print(
            f"  again: --seed {options.seed} --kills {options.kills} --session {outcome.plan.number}{alone}"
        )
        for line in (*outcome.history[-_SHOWN:], *outcome.violations[:_SHOWN]):
            print(f"  {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no session after this long"
    )
    parser.add_argument("--lanes", type=int, default=0, help="sessions at a time: twice the processors")
    parser.add_argument("--session", type=int, help="only this session of the seed")
    parser.add_argument("--alone", action="store_true", help="nobody else is at the files")
    parser.add_argument("--broken", choices=BUGS, default="", help="seed a bug")
    options = parser.parse_args()
    began = time.monotonic()
    print(f"write storm  kills {options.kills}  seed {options.seed}", flush=True)
    tally = storm(
        options.kills,
        options.seed,
        options.seconds,
        lanes=options.lanes,
        session=options.session,
        company=False if options.alone else None,
        broken=options.broken,
        hear=lambda tally: progress(f"{tally.kills.total():,} kills", began),
    )
    show(tally, time.monotonic() - began)
    show_violations(tally, options)
    is_full = tally.kills.total() >= FULL
    return 1 if tally.violations or (is_full and tally.missed()) else 0


if __name__ == "__main__":
    sys.exit(main())
