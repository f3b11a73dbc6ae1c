"""The host's benchmark: perdure beside agentcheckpoint and a FastMCP proxy, on this machine, in one run.

    python -m bench.host [--quick] [--only startup,added,in-flight,memory,recovery] [--perdure PATH]

Each line says PASS or SHORT against its requirement and shows the medians that the ratio was made of. SHORT
is a finding, not a failure: the exit code is 0 unless something broke. The peers are installed on the first
run, each into its own environment under `.bench/`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import calls, peers, recovery, startup
from bench.client import Broken
from bench.report import Report, machine
from bench.subjects import Bench, Subject

SECTIONS = ("startup", "added", "in-flight", "memory", "recovery")
RUN_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Size:
    spawns: int
    calls: int
    blocks: int
    block_calls: int
    rounds: int


FULL = Size(spawns=15, calls=1000, blocks=5, block_calls=400, rounds=30)
QUICK = Size(spawns=5, calls=200, blocks=3, block_calls=160, rounds=6)


def main() -> int:
    options = _options()
    for peer in (peers.AGENTCHECKPOINT, peers.FASTMCP):
        peers.ensure(peer)
    signal.signal(signal.SIGALRM, _overdue)
    signal.alarm(RUN_SECONDS)
    report = Report()
    print(f"perdure host benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    for peer in (peers.AGENTCHECKPOINT, peers.FASTMCP):
        print(f"  peer     {peers.versions(peer)}")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-", ignore_cleanup_errors=True) as scratch:
        bench = Bench(Path(scratch), options.perdure)
        _run(bench, report, QUICK if options.quick else FULL, options.only)
    report.close()
    return 1 if report.broken else 0


def _run(bench: Bench, report: Report, size: Size, only: tuple[str, ...]) -> None:
    proxy: Subject | None = None

    def section(name: str, measure: Callable[[], None]) -> None:
        """One section that cannot be measured must not hide the others."""
        if name not in only:
            return
        try:
            measure()
        except (Broken, OSError, ValueError, LookupError) as error:
            report.failed(name, error)

    def chosen() -> Subject:
        nonlocal proxy
        proxy = proxy or calls.best_proxy(bench, report)
        return proxy

    section("startup", lambda: startup.measure(bench, report, spawns=size.spawns))
    section("added", lambda: calls.measure_added(bench, report, chosen(), calls=size.calls))
    section(
        "in-flight",
        lambda: calls.measure_in_flight(bench, report, chosen(), blocks=size.blocks, calls=size.block_calls),
    )
    section("memory", lambda: calls.measure_memory(bench, report, chosen()))
    section("recovery", lambda: recovery.measure(bench, report, rounds=size.rounds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The host's benchmark, beside its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer spawns, calls and rounds")
    parser.add_argument("--only", type=_sections, default=SECTIONS, help=f"some of {','.join(SECTIONS)}")
    parser.add_argument(
        "--perdure", type=Path, default=Path(sys.executable).parent / "perdure", help="the command to measure"
    )
    return parser.parse_args()


def _sections(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(SECTIONS):
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}")
    return names


def _overdue(_signal: int, _frame: object) -> None:
    # An exception, not an exit: every client's context still ends its process.
    raise SystemExit(f"the run took more than {RUN_SECONDS} s and was ended")


if __name__ == "__main__":
    sys.exit(main())
