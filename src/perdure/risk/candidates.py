"""What the engine looks for, confirmed places in the bytes of a text, and which of them stay where they overlap."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from perdure.risk.report import Tier

TIERS: Final = {"precise": 0, "generic": 1, "hint": 2}
STRETCH: Final = 4_096


class Entry(NamedTuple):
    """A literal, and the pattern of fixed `width` with it (`lead` before it); "" for the literal alone."""

    literal: bytes
    caseless: bool = False
    trigger: str = ""
    lead: int = 0
    width: int = 0

    @property
    def pattern(self) -> bytes:
        return self.trigger.encode() or re.escape(self.literal)


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


def drop_overlaps(found: list[Candidate]) -> list[Candidate]:
    """Of places that overlap, the one of the better tier, the higher rank, the greater length."""
    if all(before.end <= after.start for before, after in pairwise(found)):
        return found
    best = sorted(found, key=lambda each: (TIERS[each.tier], -each.rank, each.start - each.end, each.start))
    taken = _Taken()
    kept = [candidate for candidate in best if taken.take(candidate.start, candidate.end)]
    kept.sort(key=lambda each: each.start)
    return kept


class _Taken:
    """The taken places by short stretches of the text: a search costs no more in a long text."""

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
