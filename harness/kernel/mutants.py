"""Seeded bugs of the kernel: each must be found by the explorer, or the explorer is not worth its name.

python -m harness.kernel.mutants [--one NAME] [--most N]

A mutant is a patch of one module's source, applied while it is imported in a process of its own; no file
is touched. An old text that does not occur exactly once is an error, so the list cannot go stale.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType

import msgspec

import perdure
from harness.kernel.seeded_bugs import MUTANTS, Mutant

_KERNEL = Path(perdure.__path__[0]) / "kernel"


class Verdict(msgspec.Struct):
    name: str
    histories: int
    invariant: str = ""
    detail: str = ""
    actions: list[str] = []
    seconds: float = 0.0


class _Patched(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        return compile(
            source.replace(self._mutant.old, self._mutant.new), self.path, "exec", dont_inherit=True
        )


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != f"perdure.kernel.{self._mutant.module}":
            return None
        file = str(_KERNEL / f"{self._mutant.module}.py")
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_Patched(fullname, file, self._mutant)
        )


def occurrences(mutant: Mutant) -> int:
    return (_KERNEL / f"{mutant.module}.py").read_text(encoding="utf-8").count(mutant.old)


def hunt(mutant: Mutant, most: int) -> Verdict:
    """Explore the patched kernel in this process, which must not have imported the kernel before."""
    sys.meta_path.insert(0, _Finder(mutant))
    from harness.kernel.histories import Tally, exhaust, shrink, wander
    from harness.kernel.scopes import EXHAUSTIVE, RANDOM

    began = time.monotonic()
    tally = Tally()
    seed = 0
    while tally.failure is None and len(tally.histories) < most:
        for scope in RANDOM:
            wander(scope, seed, tally)
            if tally.failure is not None:
                break
        seed += 1
    if tally.failure is None:
        for scope in EXHAUSTIVE:
            exhaust(scope, tally, most=len(tally.histories) + most)
            if tally.failure is not None:
                break
    found = Verdict(mutant.name, len(tally.histories))
    if tally.failure is not None:
        scope = next(s for s in (*EXHAUSTIVE, *RANDOM) if s.name == tally.failure.scope)
        failure = shrink(scope, tally.failure)
        found.invariant, found.detail, found.actions = failure.invariant, failure.detail, failure.actions
    found.seconds = time.monotonic() - began
    return found


def hunt_apart(mutant: Mutant, most: int) -> Verdict:
    """The same in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "harness.kernel.mutants",
        "--one",
        mutant.name,
        "--most",
        str(most),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: {done.stderr.decode()[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Verdict)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="harness.kernel.mutants", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--one", default="", help="only the mutant of this name, in this process")
    parser.add_argument("--most", type=int, default=60_000, help="give up after this many histories")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    stale = [m.name for m in MUTANTS if occurrences(m) != 1]
    if stale:
        print("old text does not occur exactly once:", *stale, sep="\n  ", file=sys.stderr)
        return 1
    if options.one:
        verdict = hunt(next(m for m in MUTANTS if m.name == options.one), options.most)
        print(msgspec.json.encode(verdict).decode() if options.json else _row(verdict))
        if not options.json:
            print("\n".join(f"  {action}" for action in verdict.actions), verdict.detail, sep="\n")
        return 0 if verdict.invariant else 1
    print(f"{'mutant':52} | found after | invariant")
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for verdict in pool.map(lambda m: hunt_apart(m, options.most), MUTANTS):
            verdicts.append(verdict)
            print(_row(verdict), flush=True)
    survivors = [v.name for v in verdicts if not v.invariant]
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} found")
    return 1 if survivors else 0


def _row(verdict: Verdict) -> str:
    return f"{verdict.name:52} | {verdict.histories:11,} | {verdict.invariant or 'SURVIVES'}"


if __name__ == "__main__":
    sys.exit(main())
