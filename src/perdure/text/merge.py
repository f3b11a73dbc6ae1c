"""Three-way merge by lines: the changes of both sides, or the regions where they collide.

Used by undo: `base` is the content that the undone change wrote, `ours` is the file as it is now, and `theirs` is the
content before that change. Two changes collide only if they touch the same lines or add lines at the same place;
changes of neighbouring lines both apply. A merge with a collision returns no text at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.text import lines
from perdure.text.lines import Change


class Region(msgspec.Struct, frozen=True):
    """A collision, as half-open ranges of line indexes in each of the three texts."""

    base: tuple[int, int]
    ours: tuple[int, int]
    theirs: tuple[int, int]


class Merged(msgspec.Struct, frozen=True):
    """The text with the changes of both sides."""

    text: str


class Conflict(msgspec.Struct, frozen=True):
    """Both sides changed the same regions."""

    regions: tuple[Region, ...]


class _Side:
    """One text compared with the base: a queue of its changes, and the offset they cause in the lines that follow."""

    def __init__(self, base: Sequence[str], text: str) -> None:
        self.lines = lines.split(text)
        self.changes = lines.diff(base, self.lines)
        self.next_index = 0
        self.offset = 0

    def peek_change(self) -> Change | None:
        return self.changes[self.next_index] if self.next_index < len(self.changes) else None

    def pop_change(self) -> Change:
        change = self.changes[self.next_index]
        self.next_index += 1
        self.offset = change.b_end - change.a_end
        return change

    def added_lines(self, change: Change) -> list[str]:
        return self.lines[change.b_start : change.b_end]


def merge(base: str, ours: str, theirs: str) -> Merged | Conflict:
    """Merge both sides. Equal changes of both sides are applied once."""
    base_lines = lines.split(base)
    sides = _Side(base_lines, ours), _Side(base_lines, theirs)
    result: list[str] = []
    regions: list[Region] = []
    at = 0
    while (first := _find_side_with_first_change(sides)) is not None:
        group: list[list[Change]] = [[], []]  # changes of each side that collide
        group[first].append(sides[first].pop_change())
        while (colliding := _find_colliding_side(sides, group)) is not None:
            group[colliding].append(sides[colliding].pop_change())
        start = min(change.a_start for changes in group for change in changes)
        end = max(change.a_end for changes in group for change in changes)
        result += base_lines[at:start]
        at = end
        ranges = [_map_range(side, changes, start, end) for side, changes in zip(sides, group, strict=True)]
        our_lines, their_lines = (side.lines[slice(*part)] for side, part in zip(sides, ranges, strict=True))
        if group[0] and group[1] and our_lines != their_lines:
            regions.append(Region((start, end), ranges[0], ranges[1]))
        result += our_lines if group[0] else their_lines
    if regions:
        return Conflict(tuple(regions))
    return Merged("".join(result + base_lines[at:]))


def _find_side_with_first_change(sides: tuple[_Side, _Side]) -> int | None:
    """Return the index of the side whose next change comes first in the base."""
    next_changes = [
        (change.a_start, change.a_end, index)
        for index, side in enumerate(sides)
        if (change := side.peek_change()) is not None
    ]
    return min(next_changes)[2] if next_changes else None


def _find_colliding_side(sides: tuple[_Side, _Side], group: list[list[Change]]) -> int | None:
    """Return the index of a side whose next change collides with the other side's last change in the group."""
    for index, side in enumerate(sides):
        change, other = side.peek_change(), 1 - index
        if change is not None and group[other] and _collide(sides[other], group[other][-1], side, change):
            return index
    return None


def _collide(side: _Side, change: Change, other_side: _Side, other: Change) -> bool:
    """Whether two changes cannot both apply. `other` does not begin before `change`."""
    if max(change.a_start, other.a_start) < min(change.a_end, other.a_end):
        return True
    if change.a_start == change.a_end and other.a_start == other.a_end:
        return bool(change.a_start == other.a_start)
    if change.a_start == change.a_end and other.a_start < change.a_start < other.a_end:
        return True
    if other.a_start == other.a_end and change.a_start < other.a_start < change.a_end:
        return True
    if change.a_end != other.a_start and other.a_end != change.a_start:
        return False
    # Adjacent: lines that both add would appear twice, and no line can follow one without a line end.
    added, other_added = side.added_lines(change), other_side.added_lines(other)
    is_shared = not set(added).isdisjoint(other_added)
    return is_shared or bool(added and other_added and not added[-1].endswith("\n"))


def _map_range(side: _Side, changes: list[Change], start: int, end: int) -> tuple[int, int]:
    """Map the range `start:end` of the base to the range of one side, which made these changes in it."""
    if not changes:
        return start + side.offset, end + side.offset
    first, last = changes[0], changes[-1]
    return first.b_start - (first.a_start - start), last.b_end + (end - last.a_end)
