"""Shared state before and after the power goes: calls in lanes as for files, each lane on keys of its own.

A lane's keys are at any time those after its last answered call, or after the one under way; every answered call is
known by its invocation key, and no revision stands for two calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from harness.power.disk_log import Record
from harness.power.driver import named, run, state_surface
from harness.power.recording import progress
from harness.power.verdict import Finding
from harness.power.workload import Files, Lane, Step
from perdure.protocol.calls import Done
from perdure.surfaces.port import Surface
from perdure.surfaces.state.surface import StateSurface

KEYS = 4
VALUES = (10, 10, 300, 5_000, 60_000)


def state_lanes(count: int, length: int, seed: int) -> list[Lane]:
    return [_lane(f"lane{n}", length, random.Random(f"{seed} {n}")) for n in range(count)]


def _lane(name: str, length: int, chance: random.Random) -> Lane:
    made = Lane(name, [], [{}], [None])
    values: dict[str, str] = {}
    versions: dict[str, int] = {}
    while len(made.steps) < length:
        key = f"{name}/{chance.randrange(KEYS)}"
        other = f"{name}/{chance.randrange(KEYS)}"
        value = '"' + chance.randbytes(chance.choice(VALUES) // 2).hex() + '"'
        changes: dict[str, str | None] = {key: value}
        match chance.choice(("set", "set", "txn", "delete", "increment")):
            case "set":
                call: tuple[str, dict[str, Any]] = ("set_state", {"key": key, "value": value})
            case "txn" if other != key:
                gone = other in values
                changes[other] = None if gone else value
                ops = [{"op": "set", "key": key, "value": value}]
                ops += [
                    {"op": "delete", "key": other} if gone else {"op": "set", "key": other, "value": value}
                ]
                call = ("state_txn", {"then": ops})
            case "delete" if key in values:
                changes = {key: None}
                call = ("delete_state", {"key": key})
            case "increment":
                counter = f"{name}/count"
                changes = {counter: str(int(values.get(counter, "0")) + 1)}
                call = ("state_patch", {"key": counter, "op": "increment", "value": "1"})
            case _:
                continue
        for one, now in changes.items():
            versions[one] = versions.get(one, 0) + 1
            values.pop(one, None)
            if now is not None:
                values[one] = now
        made.steps.append(Step(f"{name}-{len(made.steps)}", *call))
        made.after.append({one: f"{versions[one]} {now}" for one, now in values.items()})
        made.undone.append(None)
    return made


def judge_state(store: str, lanes: Sequence[Lane], told: Sequence[Record]) -> list[Finding]:
    """`told` is the log up to the cut."""
    surface = state_surface(store)
    assert isinstance(surface, StateSurface)
    try:
        try:
            found = [finding for lane in lanes for finding in _of_lane(surface, lane, told)]
            return [*found, *_revisions(surface, lanes)]
        except Exception as error:
            return [Finding("closed", f"{type(error).__name__}: {error}")]
    finally:
        surface.close()


def _of_lane(surface: Surface, lane: Lane, told: Sequence[Record]) -> Iterator[Finding]:
    done, begun = progress(lane, told)
    have = _kept(surface, lane)
    reached = [number for number in range(done, done + 1 + begun) if have == lane.after[number]]
    if not reached:
        old, new = lane.after[done], lane.after[done + begun]
        wrong = [key for key in {*have, *old, *new} if have.get(key) not in (old.get(key), new.get(key))]
        yield Finding(
            "lost" if wrong else "half", f"{lane.name}: {sorted(wrong)} ({done} calls, begun {begun})"
        )
        return
    for number in range(min(done + 1, len(lane.steps))):
        is_known = isinstance(surface.probe(lane.steps[number].key), Done)
        if is_known != (number < reached[0]):
            yield Finding(
                "told", f"{lane.steps[number].key}: only the {'keys' if not is_known else 'answers'} know"
            )


def _kept(surface: Surface, lane: Lane) -> Files:
    given = {"prefix": f"{lane.name}/", "values": True}
    rows = run(named(surface), "list_state", given, "judge", None)["keys"]
    return {row["key"]: f"{row['version']} {row['value']}" for row in rows}


def _revisions(surface: Surface, lanes: Sequence[Lane]) -> Iterator[Finding]:
    """Every version of every key, once each, and the versions of a key in the order of their revisions."""
    for lane in lanes:
        for key in {change for files in lane.after for change in files}:
            given = {"key": key, "limit": 1000}
            rows = run(named(surface), "state_history", given, "judge", None)["versions"]
            versions, revisions = ([row[name] for row in rows] for name in ("version", "revision"))
            if versions != list(range(len(rows), 0, -1)) or revisions != sorted(set(revisions), reverse=True):
                yield Finding("journal", f"{key}: versions {versions[:5]}, revisions {revisions[:5]}")
