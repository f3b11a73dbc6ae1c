"""The write surface's benchmark: perdure beside resilient-write and the bare system calls, in one run.

    python -m bench.write [--quick] [--only small,in-flight,medium,large,memory,chunks,journal] [--perdure PATH]

Every write of ours goes through the whole host and is durable when it is acknowledged. Each line says PASS or
SHORT against its requirement and shows the medians that the ratio was made of. SHORT is a finding, not a failure:
the exit code is 0 unless something broke.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import call_count, chunks, journal_length, peers, sections, writes
from bench.report import Report, machine

SECTIONS = ("small", "in-flight", "walk", "medium", "large", "memory", "chunks", "journal")


@dataclass(frozen=True, slots=True)
class Size:
    small: int
    rated: int
    medium: int
    large: int
    rows: int
    rounds: int


FULL = Size(small=600, rated=800, medium=200, large=40, rows=1_000_000, rounds=7)
QUICK = Size(small=150, rated=200, medium=40, large=8, rows=50_000, rounds=3)


def main() -> int:
    options = sections.options(__doc__, SECTIONS, "fewer calls and a shorter journal")
    peers.ensure(peers.RESILIENT_WRITE)
    sections.limit_time()
    report = Report()
    print(f"perdure write benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    print(f"  peer     {peers.versions(peers.RESILIENT_WRITE)}")
    size = QUICK if options.quick else FULL
    perdure = str(options.perdure)
    measures: dict[str, Callable[[Path], None]] = {
        "small": lambda scratch: writes.measure_small(scratch, perdure, report, calls=size.small),
        "in-flight": lambda scratch: writes.measure_in_flight(scratch, perdure, report, calls=size.rated),
        "walk": lambda scratch: call_count.measure(scratch, report),
        "medium": lambda scratch: writes.measure_medium(scratch, perdure, report, calls=size.medium),
        "large": lambda scratch: writes.measure_large(scratch, perdure, report, calls=size.large),
        "memory": lambda scratch: writes.measure_memory(scratch, perdure, report),
        "chunks": lambda scratch: chunks.measure(scratch, perdure, report, rounds=size.rounds),
        "journal": lambda scratch: journal_length.measure(scratch, perdure, report, rows=size.rows),
    }
    return sections.run(measures, options.only, report)


if __name__ == "__main__":
    sys.exit(main())
