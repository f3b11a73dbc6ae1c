"""The state surface's benchmark: perdure beside agentcheckpoint, the worker alone, and raw psycopg, in one run.

    python -m bench.state [--quick] [--only one,in-flight,list,wait,postgres] [--perdure PATH]

Every call of ours goes through the whole host, and every set is durable (FULL) when it is acknowledged; the peer's
are not (NORMAL). Each line says PASS or SHORT against its requirement. SHORT is a finding, not a failure: the exit
code is 0 unless something broke.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import peers, sections, state_postgres, states
from bench.report import Report, machine

SECTIONS = ("one", "in-flight", "list", "wait", "postgres")


@dataclass(frozen=True, slots=True)
class Size:
    calls: int
    keys: int
    wakes: int


FULL = Size(calls=1200, keys=1_000_000, wakes=100)
QUICK = Size(calls=240, keys=100_000, wakes=25)


def main() -> int:
    options = sections.options(__doc__, SECTIONS, "fewer calls and a smaller store")
    peers.ensure(peers.AGENTCHECKPOINT)
    sections.limit_time()
    report = Report()
    print(f"perdure state benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    print(f"  peer     {peers.versions(peers.AGENTCHECKPOINT)}")
    size = QUICK if options.quick else FULL
    perdure = str(options.perdure)
    measures: dict[str, Callable[[Path], None]] = {
        "one": lambda scratch: states.measure_one(scratch, perdure, report, calls=size.calls),
        "in-flight": lambda scratch: states.measure_in_flight(scratch, perdure, report, calls=size.calls),
        "list": lambda scratch: states.measure_list(scratch, perdure, report, keys=size.keys),
        "wait": lambda scratch: states.measure_wait(scratch, perdure, report, wakes=size.wakes),
        "postgres": lambda scratch: state_postgres.measure(
            scratch, perdure, report, calls=size.calls * 2, wakes=size.wakes
        ),
    }
    return sections.run(measures, options.only, report)


if __name__ == "__main__":
    sys.exit(main())
