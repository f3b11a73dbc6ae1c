"""Agents race for overlapping paths and write: `python -m harness.reservations`.

--rounds N   (1000)   --store workspace, sqlite, postgres   where the reservations are (workspace)
--agents N   (8)      --shell tell, restore                 what becomes of a shell command's change (restore)
--seed N     (random) --bug NAME                            a seeded bug that must be found
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from typing import get_args

import msgspec

from harness.reservations.agent import AgentSettings, serve_rounds
from harness.reservations.seeded_bugs import BUGS
from harness.reservations.trial import Store, run_trial

SHOWN = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--store", choices=get_args(Store), default="workspace")
    parser.add_argument("--shell", choices=("tell", "restore"), default="restore")
    parser.add_argument("--bug", choices=("", *BUGS), default="")
    parser.add_argument("--agent", metavar="JSON", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent is not None:
        serve_rounds(msgspec.json.decode(options.agent, type=AgentSettings))
        return 0
    print(f"seed {options.seed}")
    totals = run_trial(
        options.rounds, options.agents, options.seed, options.store, options.shell, options.bug
    )
    violations = totals["violations"]
    print(json.dumps({**totals, "violations": len(violations)}))
    for line in violations[:SHOWN]:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
