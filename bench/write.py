"""The write surface's benchmark: perdure beside resilient-write and the bare system calls, in one run.

    python bench/write.py [--quick] [--only small,in-flight,large,memory,chunks,journal] [--perdure PATH]

Every write of ours goes through the whole host and is durable when it is acknowledged. Each line says PASS or
SHORT against its requirement and shows the medians that the ratio was made of. SHORT is a finding, not a failure:
the exit code is 0 unless something broke.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import chunks
import journal_length
import peers
import writes
from client import Broken
from report import Report, machine

SECTIONS = ("small", "in-flight", "large", "memory", "chunks", "journal")
RUN_SECONDS = 1500


@dataclass(frozen=True, slots=True)
class Size:
    small: int
    rated: int
    large: int
    rows: int
    rounds: int


FULL = Size(small=600, rated=800, large=40, rows=1_000_000, rounds=7)
QUICK = Size(small=150, rated=200, large=8, rows=50_000, rounds=3)


def main() -> int:
    options = _options()
    peers.ensure(peers.RESILIENT_WRITE)
    signal.signal(signal.SIGALRM, _overdue)
    signal.alarm(RUN_SECONDS)
    report = Report()
    print(f"perdure write benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    print(f"  peer     {peers.versions(peers.RESILIENT_WRITE)}")
    size = QUICK if options.quick else FULL
    perdure = str(options.perdure)
    measures: dict[str, Callable[[Path], None]] = {
        "small": lambda scratch: writes.measure_small(scratch, perdure, report, calls=size.small),
        "in-flight": lambda scratch: writes.measure_in_flight(scratch, perdure, report, calls=size.rated),
        "large": lambda scratch: writes.measure_large(scratch, perdure, report, calls=size.large),
        "memory": lambda scratch: writes.measure_memory(scratch, perdure, report),
        "chunks": lambda scratch: chunks.measure(scratch, perdure, report, rounds=size.rounds),
        "journal": lambda scratch: journal_length.measure(scratch, perdure, report, rows=size.rows),
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
    parser.add_argument("--quick", action="store_true", help="fewer calls and a shorter journal")
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
