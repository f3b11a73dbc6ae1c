"""A benchmark in sections, each in a folder of its own: its options, its time limit, and the run."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.client import Broken
from bench.report import Report

RUN_SECONDS = 1500


def options(doc: str | None, sections: Sequence[str], quick: str) -> argparse.Namespace:
    def wanted(text: str) -> tuple[str, ...]:
        named = tuple(text.split(","))
        if unknown := set(named) - set(sections):
            raise argparse.ArgumentTypeError(f"no such section: {', '.join(sorted(unknown))}")
        return named

    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--only", default=tuple(sections), type=wanted, metavar="SECTION[,…]")
    beside = Path(sys.executable).parent / "perdure"
    parser.add_argument("--perdure", type=Path, default=beside, help="the command to measure")
    return parser.parse_args()


def limit_time() -> None:
    signal.signal(signal.SIGALRM, _overdue)
    signal.alarm(RUN_SECONDS)


def _overdue(*_: object) -> None:
    raise SystemExit(f"the benchmark took more than {RUN_SECONDS} s")


def run(measures: Mapping[str, Callable[[Path], None]], only: Sequence[str], report: Report) -> int:
    for name in only:
        with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as scratch:
            try:
                measures[name](Path(scratch))
            except (Broken, OSError, ValueError, LookupError) as error:
                report.failed(name, error)  # one section that cannot be measured must not hide the others
    report.close()
    return 1 if report.broken else 0
