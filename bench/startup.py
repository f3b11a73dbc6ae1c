"""From spawn to the first answers, beside agentcheckpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.client import Client
from bench.report import Report, ms, p50
from bench.subjects import Bench, Subject

INITIALIZE_LIMIT = 0.25
FIRST_TOOL_LIMIT = 0.5

Step = tuple[str, dict[str, Any]]

HEALTH: Step = ("health", {})
GET_STATE: Step = ("get_state", {"key": "bench"})
SET_STATE: Step = ("set_state", {"key": "bench", "value": "1"})


def measure(bench: Bench, report: Report, *, spawns: int) -> None:
    perdure, peer = bench.bare(), bench.agentcheckpoint()
    # One unmeasured spawn of each: compiled modules, agentcheckpoint's database, perdure's catalog.
    with bench.start(peer) as client:
        client.initialize()
        client.call(*SET_STATE)
    with bench.start(perdure) as client:
        client.initialize()
        client.call(*HEALTH)
        stateful = any(tool["name"] == GET_STATE[0] for tool in client.request("tools/list")["tools"])

    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    for _ in range(spawns):
        ours.append(_spawn(bench, perdure, [HEALTH, GET_STATE] if stateful else [HEALTH]))
        theirs.append(_spawn(bench, peer, [GET_STATE]))

    report.title(f"startup: median of {spawns} spawns each, interleaved")
    _compare(report, "spawn -> initialize answered", ours, theirs, 0, 0, INITIALIZE_LIMIT)
    _compare(report, "spawn -> first tool (health; get_state)", ours, theirs, 1, 1, FIRST_TOOL_LIMIT)
    if stateful:
        # health is answered by the host itself; this one has been through the worker.
        ratio = _column(ours, 2) / _column(theirs, 1)
        report.figure(
            "spawn -> health, then get_state", f"perdure {ms(_column(ours, 2))}  ratio {ratio:.2f}x"
        )


def _spawn(bench: Bench, subject: Subject, steps: Sequence[Step]) -> list[float]:
    """Seconds from the spawn to `initialize` and to each of the calls that follow it."""
    with bench.start(subject) as client:
        return [_initialized(client), *(_called(client, step) for step in steps)]


def _initialized(client: Client) -> float:
    client.initialize()
    return client.elapsed


def _called(client: Client, step: Step) -> float:
    client.call(*step)
    return client.elapsed


def _column(rows: list[list[float]], index: int) -> float:
    return p50([row[index] for row in rows])


def _compare(
    report: Report,
    label: str,
    ours: list[list[float]],
    theirs: list[list[float]],
    our_step: int,
    their_step: int,
    limit: float,
) -> None:
    mine, other = _column(ours, our_step), _column(theirs, their_step)
    report.ratio(label, f"perdure {ms(mine)}, agentcheckpoint {ms(other)}", mine / other, limit)
