"""The state surface's benchmark: perdure beside agentcheckpoint, the worker alone, and raw psycopg, in one run.

    python bench/state.py [--quick] [--only one,in-flight,list,wait,postgres] [--perdure PATH]

Every call of ours goes through the whole host, and every set is durable (FULL) when it is acknowledged; the peer's
are not (NORMAL). Each line says PASS or SHORT against its requirement. SHORT is a finding, not a failure: the exit
code is 0 unless something broke.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import peers
import state_postgres
import states
from client import Broken
from report import Report, machine

SECTIONS = ("one", "in-flight", "list", "wait", "postgres")
RUN_SECONDS = 1500


@dataclass(frozen=True, slots=True)
class Size:
    calls: int
    keys: int
    wakes: int


FULL = Size(calls=1200, keys=1_000_000, wakes=100)
QUICK = Size(calls=240, keys=100_000, wakes=25)


def main() -> int:
    options = _options()
    peers.ensure(peers.AGENTCHECKPOINT)
    signal.signal(signal.SIGALRM, _overdue)
    signal.alarm(RUN_SECONDS)
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
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as scratch:
            try:
                measures[name](Path(scratch))
            except (Broken, OSError, ValueError, LookupError) as error:
                report.failed(name, error)  # one section that cannot be measured must not hide the others
    report.close()
    return 1 if report.broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls and a smaller store")
    parser.add_argument("--only", default=SECTIONS, type=_sections, metavar="SECTION[,…]")
    beside = Path(sys.executable).parent / "perdure"
    parser.add_argument("--perdure", type=Path, default=beside, help="the command to measure")
    return parser.parse_args()


def _sections(text: str) -> tuple[str, ...]:
    wanted = tuple(text.split(","))
    if unknown := set(wanted) - set(SECTIONS):
        raise argparse.ArgumentTypeError(f"no such section: {', '.join(sorted(unknown))}")
    return wanted


def _overdue(*_: object) -> None:
    raise SystemExit(f"the benchmark took more than {RUN_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
