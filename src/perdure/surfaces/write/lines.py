"""The lines of a text: counted, masked, and where a block that is not there comes closest.

What two texts share is in `shared_lines.py`, which loads fast; its names are offered here, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.surfaces.write.shared_lines import Block, Change, changes, matching, split

__all__ = [
    "Block",
    "Change",
    "Nearest",
    "changes",
    "line_end",
    "masked",
    "matching",
    "nearest",
    "number_at",
    "split",
    "total",
]

MASK_LIMIT: Final = 80
_WITNESSES: Final = 16  # lines of a block, or words of a line, that are asked where they stand
_HITS: Final = 1000  # places that each of them may name
_SAYING: Final = 40  # letters beyond this do not make a line a better witness
_WORD = re.compile(r"\w{3,}")


class Nearest(NamedTuple):
    """Where a missing block comes closest: its first line and the first that differs, from zero."""

    start: int
    diverges: int
    text: str


def total(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def number_at(text: str, offset: int) -> int:
    """The line that holds a character, from one."""
    return text.count("\n", 0, offset) + 1


def masked(line: str) -> str:
    """The shape of a line without what it says, for an error that must not carry content."""
    shape = (
        c if not c.isalnum() else "0" if c.isdigit() else "X" if c.isupper() else "x"
        for c in line[:MASK_LIMIT].rstrip()
    )
    return "".join(shape)


# --- where a missing block comes closest --------------------------------------------------------------------


def nearest(text: str, block: Sequence[str]) -> Nearest | None:
    """The place that most lines of a block speak for, or most words of its longest. None if none does."""
    wanted = [line.strip() for line in block]
    telling = sorted(set(wanted) - {""}, key=len)[-_WITNESSES:]
    hit = _witnessed(text, [(line, wanted.index(line)) for line in telling], whole=True)
    if hit is None:
        at = max(range(len(wanted)), key=lambda index: len(wanted[index]), default=0)
        words = sorted(set(_WORD.findall(wanted[at][:400])) if wanted else (), key=len)[-_WITNESSES:]
        hit = _witnessed(text, [(word, at) for word in words], whole=False)
    return None if hit is None else _compared(text, block, *hit)


def _witnessed(text: str, needles: list[tuple[str, int]], *, whole: bool) -> tuple[int, int, int] | None:
    """The line that most needles speak for: its number, its offset, and its place in the block."""
    votes: Counter[int] = Counter()
    places: dict[int, tuple[int, int, int]] = {}
    for needle, offset in needles:
        number = at = 0
        for _ in range(_HITS):
            hit = text.find(needle, at)
            if hit < 0:
                break
            start = max(text.rfind("\n", at, hit) + 1, at)
            number += text.count("\n", at, start)
            at = line_end(text, hit) + 1
            if not whole or text[start : at - 1].strip() == needle:
                votes[number - offset] += min(len(needle), _SAYING)
                places.setdefault(number - offset, (number, start, offset))
            number += 1
    return places[max(votes, key=lambda line: (votes[line], -line))] if votes else None


def line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _compared(text: str, block: Sequence[str], number: int, start: int, offset: int) -> Nearest:
    """The first line that differs from the block: by more than whitespace, or else by whitespace."""
    while offset and number:
        start = text.rfind("\n", 0, start - 1) + 1
        number, offset = number - 1, offset - 1
    have = text[start:].split("\n", len(block))[: len(block)]
    if offset:  # the block begins before the text does
        return Nearest(number, number, have[0])
    for trim in (str.strip, str.rstrip):
        for index, line in enumerate(block):
            if index >= len(have) or trim(have[index]) != trim(line):
                return Nearest(number, number + index, have[index] if index < len(have) else "")
    return Nearest(number, number, have[0])
