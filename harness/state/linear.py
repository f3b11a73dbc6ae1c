"""Whether one key's history is linearizable: is there an order, true to real time, in which every answer is right?

A search over orders (Wing and Gong), remembering what led nowhere. It uses versions alone and not the store's
revisions, so it does not take the store's own word for its order. A call whose outcome is unknown may have
happened at any time after it began, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.state.events import Event


class Key(NamedTuple):
    """What a key is: its version goes on while it is deleted."""

    version: int = 0
    is_live: bool = False


START = Key()


def applied(event: Event, key: Key) -> Key | None:
    """The key after an event, or None where its answer would not be right of this key."""
    match event.tool:
        case "get_state":
            return key if _read(event, key) else None
        case "set_state":
            return _set(event, key)
        case "delete_state":
            return _deleted(event, key)
    raise ValueError(f"not an operation on one key: {event.tool}")


def _read(event: Event, key: Key) -> bool:
    if event.status == "not_found":
        return not key.is_live
    return key.is_live and key.version == event.answer["version"]


def _set(event: Event, key: Key) -> Key | None:
    expected = event.arguments.get("expected_version", -1)
    fits = expected == -1 or (key.version == expected if key.is_live else expected == 0)
    after = Key(key.version + 1, True)
    match event.status:
        case "ok":
            return after if fits and after.version == event.answer["version"] else None
        case "conflict":
            return key if not fits and key.is_live and key.version == event.answer["actual_version"] else None
        case "not_found":
            return key if not fits and not key.is_live else None
        case _:
            return after if fits else key


def _deleted(event: Event, key: Key) -> Key | None:
    after = Key(key.version + 1, False) if key.is_live else key
    if event.status == "ok":
        return after if event.answer["deleted"] == key.is_live else None
    return after


def is_linearizable(events: Iterable[Event], start: Key = START) -> bool:
    """`events` are those of one key; refused ones say nothing, nor do reads that were not answered."""
    calls = sorted((e for e in events if _says_something(e)), key=lambda e: e.began)
    last = max((i for i, e in enumerate(calls) if e.outcome == "done"), default=-1)
    seen: set[tuple[int, frozenset[int], Key]] = set()
    stack: list[tuple[int, frozenset[int], Key]] = [(0, frozenset(), start)]
    while stack:
        base, placed, key = _advanced(*stack.pop())
        if base > last:
            return True
        if (base, placed, key) in seen:
            continue
        seen.add((base, placed, key))
        for i in _next(calls, base, placed):
            if calls[i].outcome == "unknown":
                stack.append((base, placed | {i}, key))  # it never happened
            if (after := applied(calls[i], key)) is not None:
                stack.append((base, placed | {i}, after))
    return False


def _says_something(event: Event) -> bool:
    return event.outcome == "done" or (event.outcome == "unknown" and event.tool != "get_state")


def _advanced(base: int, placed: frozenset[int], key: Key) -> tuple[int, frozenset[int], Key]:
    while base in placed:
        placed, base = placed - {base}, base + 1
    return base, placed, key


def _next(calls: Sequence[Event], base: int, placed: frozenset[int]) -> list[int]:
    """Which calls may come next: whatever ended before another began comes before it."""
    horizon, found = calls[base].ended, []
    for i in range(base, len(calls)):
        if calls[i].began > horizon:
            break
        if i not in placed:
            horizon = min(horizon, calls[i].ended)
            found.append(i)
    return [i for i in found if calls[i].began <= horizon]


def anomalies(events: Iterable[Event]) -> list[str]:
    """The keys whose histories are not linearizable."""
    by_key: dict[str, list[Event]] = {}
    for event in events:
        by_key.setdefault(event.arguments["key"], []).append(event)
    return [f"key {key} is not linearizable" for key, one in by_key.items() if not is_linearizable(one)]
