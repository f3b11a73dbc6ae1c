"""Cut the power under real writes, in thousands of ways, and see whether anything that was acknowledged is lost.

    python -m harness.power [--states 1200] [--mode journal|strict|state|all] [--broken NAME] [--seed N] [--jobs N]

A workload, on files in both durabilities and on shared state, runs on an ext4 on a loop device on a disk that logs every
write and flush. The states in which a power cut can leave that disk are built, mounted, recovered by a fresh process
and judged; from some of them the workload goes on, and the power is cut again, in recovery too. `--broken` seeds a
bug and fails unless losses are found. Exit codes: 0 as it should be, 1 not, 4 this machine cannot do it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from typing import get_args

from harness.power import devices
from harness.power.devices import Unavailable
from harness.power.recording import Bench, Failed, Plan, bench, empty_workspace, record
from harness.power.seeded_bugs import BUGS
from harness.power.state_lanes import state_lanes
from harness.power.trials import Tally, again, tried
from harness.power.workload import lanes
from perdure.worker.compose import Durability

LANES = 3
STATE = "state"


def cut(bench: Bench, plan: Plan, states: int, recuts: int, jobs: int) -> Tally:
    """Record once; cut; go on from some of the states, record that, and cut again."""
    first = record(bench, plan, empty_workspace(bench))
    each = states // 2 // recuts if recuts else 0
    tally = tried(bench, plan, first, states - each * recuts, jobs)
    for number in range(recuts):
        later = again(bench, plan, first, plan.seed + number)
        tally.add(tried(bench, plan, later, each, jobs))
        os.close(later.image)
    os.close(first.image)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m harness.power", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--states", type=int, default=1_200, help="per mode")
    parser.add_argument("--mode", choices=(*get_args(Durability), STATE, "all"), default="all")
    parser.add_argument("--broken", choices=(*BUGS, "all"), help="seed this bug")
    parser.add_argument("--calls", type=int, default=40, help="of each lane")
    parser.add_argument("--lives", type=int, default=4)
    parser.add_argument("--recuts", type=int, default=8, help="states to go on from and cut again")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if (lacking := devices.missing()) is not None:
            raise Unavailable(lacking)
        return _run(options)
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 4
    except Failed as error:
        print(f"the workload failed: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    print(f"seed {options.seed}")
    failed = False
    with bench() as made:
        for plan in _wanted(options):
            broken = plan.broken
            began = time.monotonic()
            # What is lost already cannot be gone on from.
            recuts = options.recuts if broken is None else 0
            tally = cut(made, plan, options.states, recuts, options.jobs)
            mode = STATE if plan.is_state else plan.durability
            what = f"{broken} ({BUGS[broken].description})" if broken else mode
            print(f"{what}  {tally}  {time.monotonic() - began:.0f} s", flush=True)
            for line in tally.examples:
                print(f"  {line}")
            failed |= (tally.losses == 0) if broken else not tally.is_clean
    return 1 if failed else 0


def _wanted(options: argparse.Namespace) -> list[Plan]:
    if options.broken is not None:
        names = list(BUGS) if options.broken == "all" else [options.broken]
        return [_plan(options, BUGS[name].trial, name) for name in names]
    modes = (*get_args(Durability), STATE) if options.mode == "all" else (options.mode,)
    return [_plan(options, mode) for mode in modes]


def _plan(options: argparse.Namespace, mode: str, broken: str | None = None) -> Plan:
    is_state = mode == STATE
    make = state_lanes if is_state else lanes
    made = make(LANES, options.calls, options.seed)
    durability: Durability = "strict" if mode == "strict" else "journal"
    return Plan(durability, made, options.lives, options.seed, broken, is_state)


if __name__ == "__main__":
    sys.exit(main())
