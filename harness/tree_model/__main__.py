"""The model beside the real thing, in many runs.

    python -m harness.tree_model --runs 2000 --steps 50 [--seed N] [--broken NAME]

A run is one workspace: calls of several sessions, foreign edits, kills at fault points, good and bad endings. After
every step the answer, the files and the journal must be what the model says. A failure is shown with the fewest steps
that lead to it. With a seeded bug (`--broken`) the command must fail.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.progress import progress
from harness.tree_model.machine import TreeMachine
from harness.tree_model.seeded_bugs import BUGS

BATCH = 100


def explore(runs: int, steps: int, number: int, *, shrink: bool) -> BaseException | None:
    """As many runs of this length. Returns what failed, if anything did."""
    chance = random.Random(number)
    began = time.monotonic()
    while (missing := runs - TreeMachine.lengths[steps]) > 0:
        wanted = settings(
            max_examples=min(missing, BATCH),
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        try:
            run_state_machine_as_test(seed(chance.getrandbits(32))(TreeMachine), settings=wanted)
        except Exception as error:
            return error
        progress(f"{TreeMachine.lengths[steps]:,} of {runs:,} runs", began)
    return None


def report(steps: int, seconds: float) -> str:
    counts = dict(sorted(TreeMachine.steps.items()))
    done = {name: counts.pop(name, 0) for name in ("steps", "refused", "taken back")}
    kills = {name: counts.pop(name) for name in list(counts) if name.startswith("kills")}
    full = TreeMachine.lengths[steps]
    return "\n".join(
        (
            f"{full:,} runs of {steps} steps, {TreeMachine.lengths.total() - full:,} shorter ones, {seconds:.0f} s",
            "  ".join(f"{name} {count:,}" for name, count in (done | kills).items()),
            "  ".join(f"{name} {count:,}" for name, count in counts.items()),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=50, help="of each run")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--unshrunk", action="store_true", help="show the first failure as it was found")
    parser.add_argument("--broken", choices=sorted(BUGS), help="seed this bug")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.broken is not None:
        BUGS[options.broken].apply()
    began = time.monotonic()
    failure = explore(options.runs, options.steps, options.seed, shrink=not options.unshrunk)
    if failure is not None:
        traceback.print_exception(failure, file=sys.stdout)
    print(report(options.steps, time.monotonic() - began))
    return 1 if failure is not None else 0


if __name__ == "__main__":
    sys.exit(main())
