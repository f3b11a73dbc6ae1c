"""Where a block of lines that is not in a text comes closest.

1. Short pieces of the block are searched in the text, both without spaces and tabs. Each hit votes for the line at
   which the block would begin; a piece that is rare in the text counts more.
2. The lines with the most votes are ranked by the similarity of the whole block there.

Every step is bounded, so that a miss in a large or repetitive file is answered quickly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_MOST_CHARACTERS: Final = 16 << 20  # of a text that are searched
_PIECE: Final = 3
_MOST_PIECES: Final = 128
_TELLING_LINES: Final = 16  # lines of a block from which the pieces are taken
_HITS: Final = 500  # of each piece
_CANDIDATES: Final = 24
_LINES: Final = 20  # of a block that are compared
_WIDTH: Final = 240  # characters of a line that are compared
_LEAST_SIMILARITY: Final = 0.5
_SPACE: Final = re.compile(r"[^\S\n]+")


class Nearest(NamedTuple):
    """The line where the block would begin and the first that differs, both from zero; `column` and `text` are of the
    latter. The text is empty behind the end."""

    start: int
    diverges: int
    column: int
    text: str


def nearest(text: str, block: Sequence[str]) -> Nearest | None:
    """The place that is most similar to the block, or None where nothing is."""
    text = text[:_MOST_CHARACTERS]
    wanted = [_fold(line) for line in block]
    votes = _votes(_SPACE.sub("", text), wanted)
    if not votes:
        return None
    have = text.split("\n")
    compare = _Comparison(block, wanted)
    leading = sorted(line for line, _ in votes.most_common(_CANDIDATES))
    ranked = [(compare.similarity(have, line), line) for line in leading]
    similarity, start = max(ranked, key=lambda rank: (rank[0], -rank[1]))
    return compare.difference(have, start) if similarity >= _LEAST_SIMILARITY else None


def first_difference(one: str, other: str) -> int:
    """The first character in which two texts differ."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _fold(line: str) -> str:
    return _SPACE.sub("", line)


def _votes(folded: str, wanted: list[str]) -> Counter[int]:
    votes: Counter[int] = Counter()
    for piece, index in _pieces(wanted):
        lines = [line - index for line in _lines_with(folded, piece) if line >= index]
        for line in lines:
            votes[line] += 1_000_000 // len(lines)
    return votes


def _pieces(wanted: list[str]) -> Iterator[tuple[str, int]]:
    """Pieces of the longest lines, each with the number of its line."""
    telling = sorted(set(wanted) - {""}, key=len)[-_TELLING_LINES:]
    for line in telling:
        index, line = wanted.index(line), line[:_WIDTH]
        count = max(len(line) - _PIECE + 1, 1)
        step = -(-count * len(telling) // _MOST_PIECES)
        yield from ((piece, index) for piece in {line[at : at + _PIECE]: at for at in range(0, count, step)})


def _lines_with(folded: str, piece: str) -> Iterator[int]:
    number = at = 0
    for _ in range(_HITS):
        hit = folded.find(piece, at)
        if hit < 0:
            return
        number += folded.count("\n", at, hit)
        yield number
        at = folded.find("\n", hit)
        if at < 0:
            return


class _Comparison:
    """One block, compared with many places of a text."""

    def __init__(self, block: Sequence[str], wanted: list[str]) -> None:
        from difflib import SequenceMatcher  # here, since a worker starts without it

        self._block = block
        self._wanted = wanted
        self._last = len(block) - 1
        self._clipped = [line[:_WIDTH] for line in wanted[:_LINES]]
        self._matchers = [SequenceMatcher(None, "", line, autojunk=False) for line in self._clipped]

    def similarity(self, have: list[str], start: int) -> float:
        """From 0 to 1, the longer lines counting more."""
        total = same = 0.0
        for index, matcher in enumerate(self._matchers):
            weight = len(self._clipped[index])
            total += weight
            line = have[start + index] if start + index < len(have) else ""
            if self._fits(index, _fold(line), self._wanted[index]):
                same += weight
            elif weight and line:
                matcher.set_seq1(self._window(index, line))
                same += weight * matcher.ratio()
        return same / total if total else 0.0

    def difference(self, have: list[str], start: int) -> Nearest:
        """The first line that differs by more than whitespace, else by whitespace."""
        pairs = list(zip(self._block, have[start : start + len(self._block)], strict=False))
        for fold in (_fold, str.rstrip):
            for index, (want, line) in enumerate(pairs):
                if not self._fits(index, fold(line), fold(want)):
                    return Nearest(start, start + index, self._column(index, line), line)
            if len(pairs) < len(self._block):
                return Nearest(start, start + len(pairs), 0, "")
        return Nearest(start, start, 0, have[start])

    def _fits(self, index: int, have: str, want: str) -> bool:
        """A block may begin and end in the middle of a line."""
        if self._last == 0:
            return want in have
        return (
            have == want
            or (index == 0 and have.endswith(want))
            or (index == self._last and have.startswith(want))
        )

    def _window(self, index: int, line: str) -> str:
        """A line without its spaces; of a long one, the part that a block of one line may stand for."""
        if self._last:
            return _fold(line[: 2 * _WIDTH])[:_WIDTH]
        column = self._column(index, line)
        return _fold(line[column : column + 2 * _WIDTH])[: min(len(self._wanted[0]), _WIDTH)]

    def _column(self, index: int, line: str) -> int:
        """Where a block of one line begins in a line: most of its pieces say so."""
        want = self._block[index]
        if self._last or len(line) <= len(want):
            return 0
        columns: Counter[int] = Counter()
        for at in range(min(len(want), _WIDTH) - _PIECE + 1):
            if (hit := line.find(want[at : at + _PIECE])) >= at:
                columns[hit - at] += 1
        return max(columns, key=lambda column: (columns[column], -column), default=0)
