"""Trials of the state store on real processes.

    python -m harness.state [--clients 16] [--seconds 60] [--rounds 1000] [--only NAMES] [--backend both]

| trial | what it does |
|---|---|
| increments | 8 processes, 250 guarded increments each |
| mixed | clients that get, set, delete, transact and hold leases; every answer is checked |
| kills | the same through hosts, with their workers killed at random |
| fencing | lease holders that wake late |
| restart | the mixed clients while PostgreSQL is stopped and started under them |
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.state import trials
from perdure.storage.state import StateBackend

TRIALS = ("increments", "mixed", "kills", "fencing", "restart")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.state", description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--increments", type=int, default=250)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--only", default=",".join(TRIALS), help="which trials")
    parser.add_argument("--backend", choices=("sqlite", "postgres", "both"), default="both")
    options = parser.parse_args()
    backends = ("sqlite", "postgres") if options.backend == "both" else (options.backend,)
    failed = 0
    for backend in backends:
        with _server(backend) as server:
            for name in options.only.split(","):
                if name == "restart" and (server is None or not server.is_ours):
                    continue
                failed += _told(f"{name} on {backend}", run(name, server, options), options.seed)
    return 1 if failed else 0


def _told(title: str, verdict: trials.Verdict, seed: int) -> int:
    print(f"{title}: {verdict.told}: {len(verdict.wrong)} wrong  (seed {seed})", flush=True)
    for line in verdict.wrong[:20]:
        print(f"  {line}")
    return len(verdict.wrong)


def run(name: str, server: Any, options: argparse.Namespace) -> trials.Verdict:
    with tempfile.TemporaryDirectory(prefix="perdure-state-") as folder:
        state = server.new_database() if server is not None else os.path.join(folder, "state.db")
        if name == "increments":
            return trials.increments(state, folder, processes=8, each=options.increments)
        if name == "fencing":
            return trials.fencing(state, folder, rounds=options.rounds)
        return trials.mixed(
            state,
            folder,
            lambda: opened_backend(state),
            clients=options.clients,
            seconds=options.seconds,
            seed=options.seed,
            kills=name == "kills",
            meanwhile=restarting(server) if name == "restart" else None,
        )


def restarting(server: Any) -> Callable[[threading.Event], None]:
    """Stops and starts the server until it is over; it is up at the end."""

    def disturb(over: threading.Event) -> None:
        while not over.wait(2.0):
            server.restart()

    return disturb


def opened_backend(state: str) -> StateBackend:
    from perdure.worker.compose import open_backend

    return open_backend(state)


@contextmanager
def _server(backend: str) -> Iterator[Any]:
    if backend == "sqlite":
        yield None
        return
    from harness.state.postgres import running_postgres

    with running_postgres() as server:
        yield server


if __name__ == "__main__":
    sys.exit(main())
