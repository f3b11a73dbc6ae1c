"""Explore the kernel with each seeded bug in it, in a process of its own: every bug must be found.

python -m harness.kernel.mutants [--one NAME] [--most N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from harness.kernel.histories import Tally, exhaust, shrink, wander
from harness.kernel.scopes import EXHAUSTIVE, RANDOM
from harness.kernel.seeded_bugs import BUGS


class Verdict(msgspec.Struct):
    name: str
    histories: int
    invariant: str = ""
    detail: str = ""
    actions: list[str] = []
    seconds: float = 0.0


def hunt(name: str, most: int) -> Verdict:
    """Seed the bug into this process, for good, and explore."""
    bug = BUGS[name]
    bug.apply()
    likely = [scope for scope in RANDOM if bug.trial in scope.name] or RANDOM
    began = time.monotonic()
    tally = Tally()
    seed = 0
    for scope in EXHAUSTIVE:
        if scope.name == bug.trial and tally.failure is None:
            exhaust(scope, tally)
    while tally.failure is None and len(tally.histories) < most:
        for scope in likely:
            wander(scope, seed, tally)
            if tally.failure is not None:
                break
        seed += 1
    if tally.failure is None:
        for scope in EXHAUSTIVE:
            exhaust(scope, tally, most=len(tally.histories) + most)
            if tally.failure is not None:
                break
    verdict = Verdict(name, len(tally.histories))
    if tally.failure is not None:
        scope = next(s for s in (*EXHAUSTIVE, *RANDOM) if s.name == tally.failure.scope)
        failure = shrink(scope, tally.failure)
        verdict.invariant, verdict.detail, verdict.actions = (
            failure.invariant,
            failure.detail,
            failure.actions,
        )
    verdict.seconds = time.monotonic() - began
    return verdict


def hunt_apart(name: str, most: int) -> Verdict:
    """The same in a process of its own."""
    options = ["--one", name, "--most", str(most), "--json"]
    command = [sys.executable, "-m", "harness.kernel.mutants", *options]
    done = subprocess.run(command, capture_output=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"{name}: {done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Verdict)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="harness.kernel.mutants", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--one", choices=BUGS, help="only this bug, in this process")
    parser.add_argument("--most", type=int, default=60_000, help="give up after this many histories")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.one:
        verdict = hunt(options.one, options.most)
        print(msgspec.json.encode(verdict).decode() if options.json else _row(verdict))
        if not options.json:
            print("\n".join(f"  {action}" for action in verdict.actions), verdict.detail, sep="\n")
        return 0 if verdict.invariant else 1
    print(f"{'bug':52} | found after | invariant")
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for verdict in pool.map(lambda name: hunt_apart(name, options.most), BUGS):
            verdicts.append(verdict)
            print(_row(verdict), flush=True)
    survivors = [v.name for v in verdicts if not v.invariant]
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} found")
    return 1 if survivors else 0


def _row(verdict: Verdict) -> str:
    return f"{verdict.name:52} | {verdict.histories:11,} | {verdict.invariant or 'SURVIVES'}"


if __name__ == "__main__":
    sys.exit(main())
