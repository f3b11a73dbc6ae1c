"""Every seeded bug against a storm: which promise it breaks, and after how many kills that was found.

python -m harness.crash.hunt [--one NAME] [--kills N]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from typing import Final

import msgspec

from harness.crash.seeded_bugs import BUGS, HOSTED, SHARED
from harness.crash.write_storm import storm

MOST_KILLS: Final = 600
SHORT: Final = 7
LANES: Final = 2
SEED: Final = 1


class Verdict(msgspec.Struct, frozen=True):
    kills: int
    seconds: float
    violations: list[str]


def hunt(name: str, kills: int = MOST_KILLS, seed: int = SEED) -> Verdict:
    """A storm over the product with this bug in it."""
    trial = BUGS[name].trial
    began = time.monotonic()
    tally = storm(
        kills,
        seed,
        only="hosted" if trial == HOSTED else "bare",
        most_kills=SHORT,
        lanes=LANES,
        company=trial == SHARED,
        broken=name,
    )
    for outcome in tally.violated:
        shutil.rmtree(outcome.folder)
    return Verdict(tally.kills.total(), time.monotonic() - began, tally.violations)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--one", choices=BUGS)
    parser.add_argument("--kills", type=int, default=MOST_KILLS, help="give up after so many")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    survivors = 0
    print(f"{'bug':52} | kills | found as")
    for name in [options.one] if options.one else BUGS:
        verdict = hunt(name, options.kills, options.seed)
        survivors += not verdict.violations
        shown = verdict.violations[0][:120] if verdict.violations else "NOT FOUND"
        print(f"{name:52} | {verdict.kills:5} | {shown}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
