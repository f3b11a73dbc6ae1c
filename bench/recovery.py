"""From `kill -9` of a child to the answer of the call that was in flight in it, replayed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from bench.client import Broken, Client
from bench.report import Report, ms, p50, p95
from bench.subjects import Bench

LIMIT_SECONDS = 0.2
READY_SECONDS = 15.0
ANSWER_SECONDS = 10.0
# After so many errors the rest of the rounds would only take time.
REFUSED_LIMIT = 3
# The host promises to absorb a kill every 1.5 s for half a minute; a new host follows well before that.
KILL_SPACING = 1.5
ROUNDS_PER_HOST = 15
# Time for the host to pass a call on to a worker that is stopped and cannot tell us that it has it.
DISPATCH_SECONDS = 0.02
# A document that only the worker can serve, whatever surfaces it has.
READ: dict[str, Any] = {"uri": "perdure://schema/error"}

Round = Callable[[], float]
T = TypeVar("T")


class Tally:
    """The rounds of one kind of kill: how long each answer took, and the answers that were errors."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.refused: list[Broken] = []

    def add(self, one: Round) -> None:
        if len(self.refused) == REFUSED_LIMIT:
            return
        try:
            self.seconds.append(one())
        except Broken as error:
            self.refused.append(error)

    def report(self, report: Report, label: str) -> None:
        rounds = len(self.seconds) + len(self.refused)
        if not self.seconds:
            raise Broken(f"no round of {rounds} was answered; the last error: {self.refused[-1]}")
        text = (
            f"p50 {ms(p50(self.seconds))}, p95 {ms(p95(self.seconds))}, max {ms(max(self.seconds))}, "
            f"{len(self.seconds)} of {rounds} answered, limit {ms(LIMIT_SECONDS)}"
        )
        # A call that was not answered took for ever: it makes the line short, however fast the others were.
        value = float("inf") if self.refused else p50(self.seconds)
        report.at_most(label, text, value, LIMIT_SECONDS)
        if self.refused:
            report.figure("  the last error", str(self.refused[-1]))


def measure(bench: Bench, report: Report, *, rounds: int) -> None:
    report.title(
        f"recovery: {rounds} rounds of kill -9 with a read-only call in flight, {KILL_SPACING} s apart"
    )
    mounted, worker = Tally(), Tally()
    keys = (f"hold-{number}" for number in range(rounds))
    for first in range(0, rounds, ROUNDS_PER_HOST):
        with ExitStack() as stack:
            behind = stack.enter_context(bench.start(bench.mounted()))
            behind.initialize()
            tool = bench.mounted().tool("hold")
            behind.call_until_ready(bench.mounted().tool("echo"), {"text": "ready"})
            alone = stack.enter_context(bench.start(bench.bare()))
            alone.initialize()
            for _ in range(min(ROUNDS_PER_HOST, rounds - first)):
                began = time.perf_counter()
                mounted.add(lambda: _kill_mounted(behind, tool, bench.marks, keys))  # noqa: B023
                worker.add(lambda: _kill_worker(alone))  # noqa: B023
                time.sleep(max(0.0, KILL_SPACING - (time.perf_counter() - began)))
    mounted.report(report, "mounted server, kill -9 -> answer")
    worker.report(report, "built-in worker, kill -9 -> answer")


def _kill_mounted(client: Client, tool: str, marks: Path, keys: Iterator[str]) -> float:
    key = next(keys)
    request = client.send("tools/call", {"name": tool, "arguments": {"key": key}})
    victim = int(_await(lambda: _line_of(marks / key), f"the call to reach the backend ({key})"))
    killed = _kill(victim)
    result = client.result(request, ANSWER_SECONDS)
    answered = int(result["content"][0]["text"])
    if answered == victim:
        raise Broken(f"the answer came from process {victim}, which was killed")
    return client.arrived - killed


def _kill_worker(client: Client) -> float:
    """The worker is stopped first, so that the read is in its pipe and unanswered when it dies."""
    victim = _await(lambda: _worker_pid(client), "a worker in health")
    client.request("resources/read", READ)
    os.kill(victim, signal.SIGSTOP)
    try:
        request = client.send("resources/read", READ)
        time.sleep(DISPATCH_SECONDS)
    finally:
        killed = _kill(victim)
    client.result(request, ANSWER_SECONDS)
    return client.arrived - killed


def _worker_pid(client: Client) -> int | None:
    """The pid of the one child of a host without mounts, as `health` shows it."""
    health = client.call("health", {"render": "json", "detail": "full"})
    mounts = (health.get("structuredContent") or {}).get("mounts") or []
    pids = [mount["pid"] for mount in mounts if mount.get("pid")]
    return pids[0] if len(pids) == 1 else None


def _kill(pid: int) -> float:
    """Kill a child that the host under measurement has just named to us, and say when."""
    now = time.perf_counter()
    os.kill(pid, signal.SIGKILL)
    return now


def _line_of(path: Path) -> str | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return text if text.endswith("\n") else None


def _await(look: Callable[[], T | None], what: str, seconds: float = READY_SECONDS) -> T:
    deadline = time.perf_counter() + seconds
    while (found := look()) is None:
        if time.perf_counter() > deadline:
            raise Broken(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(0.001)
    return found
