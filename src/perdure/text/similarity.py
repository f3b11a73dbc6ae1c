"""Find the place in a text that is most similar to a block of lines.

1. Search short pieces (n-grams) of the block in the text, both without spaces and tabs. Each hit votes for the line
   at which the block would begin; a piece that is rare in the text has more weight.
2. Rank the lines with the most votes by the similarity of the whole block there.

Every step is bounded, so that a miss in a large or repetitive file is answered quickly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_MAX_CHARACTERS: Final = 16 << 20  # of the text
_PIECE_LENGTH: Final = 3
_MAX_PIECES: Final = 128
_MAX_SOURCE_LINES: Final = 16  # lines of the block from which the pieces are taken
_MAX_HITS: Final = 500  # of each piece
_MAX_CANDIDATES: Final = 24
_MAX_COMPARED_LINES: Final = 20  # of the block
_MAX_WIDTH: Final = 240  # characters of a line that are compared
_MIN_SIMILARITY: Final = 0.5
_SPACE: Final = re.compile(r"[^\S\n]+")


class NearestPlace(NamedTuple):
    """`start` is the line where the block would begin, `diverges` the first line that differs, both from zero.

    `text` is that differing line, empty behind the end of the text; `column` is where the block begins in it.
    """

    start: int
    diverges: int
    column: int
    text: str


def find_nearest(text: str, block: Sequence[str]) -> NearestPlace | None:
    """Return the place that is most similar to the block, or None if nothing is similar."""
    text = text[:_MAX_CHARACTERS]
    folded_block = [_strip_spaces(line) for line in block]
    votes = _count_votes(_strip_spaces(text), folded_block)
    if not votes:
        return None
    text_lines = text.split("\n")
    comparison = _BlockComparison(block, folded_block)
    candidates = sorted(line for line, _ in votes.most_common(_MAX_CANDIDATES))
    ranking = [(comparison.measure_similarity(text_lines, line), line) for line in candidates]
    similarity, start = max(ranking, key=lambda rank: (rank[0], -rank[1]))
    return comparison.find_divergence(text_lines, start) if similarity >= _MIN_SIMILARITY else None


def find_first_difference(a: str, b: str) -> int:
    """Return the offset of the first character in which two texts differ."""
    return next((at for at, (c, d) in enumerate(zip(a, b, strict=False)) if c != d), min(len(a), len(b)))


def _strip_spaces(text: str) -> str:
    return _SPACE.sub("", text)


def _count_votes(folded_text: str, folded_block: list[str]) -> Counter[int]:
    votes: Counter[int] = Counter()
    for piece, index in _cut_pieces(folded_block):
        starts = [line - index for line in _find_lines_with(folded_text, piece) if line >= index]
        for start in starts:
            votes[start] += 1_000_000 // len(starts)
    return votes


def _cut_pieces(folded_block: list[str]) -> Iterator[tuple[str, int]]:
    """Yield pieces of the longest lines, each with the index of its line in the block."""
    longest_lines = sorted(set(folded_block) - {""}, key=len)[-_MAX_SOURCE_LINES:]
    for line in longest_lines:
        index, line = folded_block.index(line), line[:_MAX_WIDTH]
        count = max(len(line) - _PIECE_LENGTH + 1, 1)
        step = -(-count * len(longest_lines) // _MAX_PIECES)
        pieces = dict.fromkeys(line[at : at + _PIECE_LENGTH] for at in range(0, count, step))
        yield from ((piece, index) for piece in pieces)


def _find_lines_with(folded_text: str, piece: str) -> Iterator[int]:
    number = at = 0
    for _ in range(_MAX_HITS):
        hit = folded_text.find(piece, at)
        if hit < 0:
            return
        number += folded_text.count("\n", at, hit)
        yield number
        at = folded_text.find("\n", hit)
        if at < 0:
            return


class _BlockComparison:
    """Compares one block with many places of a text."""

    def __init__(self, block: Sequence[str], folded_block: list[str]) -> None:
        from difflib import SequenceMatcher  # imported on first use: most workers never need it

        self._block = block
        self._folded_block = folded_block
        self._last = len(block) - 1
        self._clipped = [line[:_MAX_WIDTH] for line in folded_block[:_MAX_COMPARED_LINES]]
        self._matchers = [SequenceMatcher(None, "", line, autojunk=False) for line in self._clipped]

    def measure_similarity(self, text_lines: list[str], start: int) -> float:
        """Return a ratio from 0 to 1. Longer lines have more weight."""
        total = same = 0.0
        for index, matcher in enumerate(self._matchers):
            weight = len(self._clipped[index])
            total += weight
            line = text_lines[start + index] if start + index < len(text_lines) else ""
            if self._fits(index, _strip_spaces(line), self._folded_block[index]):
                same += weight
            elif weight and line:
                matcher.set_seq1(self._clip_line(index, line))
                same += weight * matcher.ratio()
        return same / total if total else 0.0

    def find_divergence(self, text_lines: list[str], start: int) -> NearestPlace:
        """Return the first line that differs by more than whitespace, else the first that differs by whitespace."""
        pairs = list(zip(self._block, text_lines[start : start + len(self._block)], strict=False))
        for fold in (_strip_spaces, str.rstrip):
            for index, (wanted, line) in enumerate(pairs):
                if not self._fits(index, fold(line), fold(wanted)):
                    return NearestPlace(start, start + index, self._find_column(index, line), line)
            if len(pairs) < len(self._block):
                return NearestPlace(start, start + len(pairs), 0, "")
        return NearestPlace(start, start, 0, text_lines[start])

    def _fits(self, index: int, line: str, wanted: str) -> bool:
        """Whether a line of the text fits the block, which may begin and end in the middle of a line."""
        if self._last == 0:
            return wanted in line
        return (
            line == wanted
            or (index == 0 and line.endswith(wanted))
            or (index == self._last and line.startswith(wanted))
        )

    def _clip_line(self, index: int, line: str) -> str:
        """Strip a line's spaces and bound it; for a block of one line, take the part of the line that it may match."""
        if self._last:
            return _strip_spaces(line[: 2 * _MAX_WIDTH])[:_MAX_WIDTH]
        column = self._find_column(index, line)
        length = min(len(self._folded_block[0]), _MAX_WIDTH)
        return _strip_spaces(line[column : column + 2 * _MAX_WIDTH])[:length]

    def _find_column(self, index: int, line: str) -> int:
        """Return where a block of one line begins in a line, by the votes of its pieces."""
        wanted = self._block[index]
        if self._last or len(line) <= len(wanted):
            return 0
        votes: Counter[int] = Counter()
        for at in range(min(len(wanted), _MAX_WIDTH) - _PIECE_LENGTH + 1):
            if (hit := line.find(wanted[at : at + _PIECE_LENGTH])) >= at:
                votes[hit - at] += 1
        return max(votes, key=lambda column: (votes[column], -column), default=0)
