"""Confirmed places in the bytes of a text, and which of them stay where they overlap."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from perdure.risk.report import Tier

TIERS: Final = {"precise": 0, "generic": 1, "hint": 2}
STRETCH: Final = 4_096


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A confirmed place. Of overlapping ones the better tier wins, then the higher rank."""

    start: int
    end: int
    rule: str
    kind: str
    tier: Tier
    shown: int
    rank: int


Confirm = Callable[[bytes, int], Candidate | None]


def apart(found: list[Candidate]) -> list[Candidate]:
    """Of places that overlap, the one of the better tier, the higher rank, the greater length."""
    if all(before.end <= after.start for before, after in pairwise(found)):
        return found
    best = sorted(found, key=lambda each: (TIERS[each.tier], -each.rank, each.start - each.end, each.start))
    taken = _Taken()
    kept = [candidate for candidate in best if taken.take(candidate.start, candidate.end)]
    kept.sort(key=lambda each: each.start)
    return kept


class _Taken:
    """What is taken of the text, by short stretches, so that neither a look nor an entry costs more in a long text."""

    def __init__(self) -> None:
        self._stretches: dict[int, list[tuple[int, int]]] = {}

    def take(self, start: int, end: int) -> bool:
        """Whether the place was free; then it is no more."""
        touched = range(start // STRETCH, (end - 1) // STRETCH + 1)
        stretches = [self._stretches.setdefault(number, []) for number in touched]
        for taken in stretches:
            place = bisect_left(taken, (end, 0))
            if place and taken[place - 1][1] > start:
                return False
        for taken in stretches:
            taken.insert(bisect_left(taken, (start, end)), (start, end))
        return True
