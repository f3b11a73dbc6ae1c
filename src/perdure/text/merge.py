"""Three-way merge of lines: what both sides made of a common base, or the places where they collide.

Used by undo, where `base` is what the undone change left behind, `ours` is the file as it is now and
`theirs` is what was there before the change. Only the same lines, or lines added at the same place,
collide; edits of neighbouring lines both land. Nothing is merged in part.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.text import lines
from perdure.text.lines import Change


class Region(msgspec.Struct, frozen=True):
    """A collision as ranges of lines, from zero and without the end, in each of the three texts."""

    base: tuple[int, int]
    ours: tuple[int, int]
    theirs: tuple[int, int]


class Merged(msgspec.Struct, frozen=True):
    """Both sides, in one text."""

    text: str


class Conflict(msgspec.Struct, frozen=True):
    """The two sides cannot both be had."""

    regions: tuple[Region, ...]


class _Side:
    """One text against the base: its changes, and how far they moved what follows."""

    def __init__(self, base: Sequence[str], text: str) -> None:
        self.lines = lines.split(text)
        self.changes = lines.changes(base, self.lines)
        self.at = 0
        self.shift = 0

    def next(self) -> Change | None:
        return self.changes[self.at] if self.at < len(self.changes) else None

    def take(self) -> Change:
        change = self.changes[self.at]
        self.at += 1
        self.shift = change.b1 - change.a1
        return change

    def added(self, change: Change) -> list[str]:
        return self.lines[change.b0 : change.b1]


def merge(base: str, ours: str, theirs: str) -> Merged | Conflict:
    """The text with the changes of both sides, or where they collide."""
    common = lines.split(base)
    sides = _Side(common, ours), _Side(common, theirs)
    result: list[str] = []
    regions: list[Region] = []
    at = 0
    while (first := _first(sides)) is not None:
        group: list[list[Change]] = [[], []]
        group[first].append(sides[first].take())
        while (joined := _joining(sides, group)) is not None:
            group[joined].append(sides[joined].take())
        low = min(change.a0 for side in group for change in side)
        high = max(change.a1 for side in group for change in side)
        result += common[at:low]
        at = high
        spans = [_span(side, taken, low, high) for side, taken in zip(sides, group, strict=True)]
        texts = [side.lines[start:end] for side, (start, end) in zip(sides, spans, strict=True)]
        if group[0] and group[1] and texts[0] != texts[1]:
            regions.append(Region((low, high), spans[0], spans[1]))
        result += texts[0] if group[0] else texts[1]
    if regions:
        return Conflict(tuple(regions))
    return Merged("".join(result + common[at:]))


def _first(sides: tuple[_Side, _Side]) -> int | None:
    """The side whose next change comes first in the base."""
    waiting = [
        (change.a0, change.a1, index)
        for index, side in enumerate(sides)
        if (change := side.next()) is not None
    ]
    return min(waiting)[2] if waiting else None


def _joining(sides: tuple[_Side, _Side], group: list[list[Change]]) -> int | None:
    """A side whose next change collides with what the other side has in the group."""
    for index, side in enumerate(sides):
        change, other = side.next(), 1 - index
        if change is not None and group[other] and _collide(sides[other], group[other][-1], side, change):
            return index
    return None


def _collide(one_side: _Side, one: Change, other_side: _Side, other: Change) -> bool:
    """Whether a change, and one of the other side that does not begin before it, cannot both land."""
    if max(one.a0, other.a0) < min(one.a1, other.a1):
        return True
    if one.a0 == one.a1 and other.a0 == other.a1:
        return bool(one.a0 == other.a0)
    if one.a0 == one.a1 and other.a0 < one.a0 < other.a1:
        return True
    if other.a0 == other.a1 and one.a0 < other.a0 < one.a1:
        return True
    if one.a1 != other.a0 and other.a1 != one.a0:
        return False
    # Side by side: lines that both add would stand there twice, and behind an unended line none can stand.
    before, after = one_side.added(one), other_side.added(other)
    shared = not set(before).isdisjoint(after)
    return shared or bool(before and after and not before[-1].endswith("\n"))


def _span(side: _Side, taken: list[Change], low: int, high: int) -> tuple[int, int]:
    """The lines of one side that stand where the base has `low:high`."""
    if not taken:
        return low + side.shift, high + side.shift
    return taken[0].b0 - (taken[0].a0 - low), taken[-1].b1 + (high - taken[-1].a1)
