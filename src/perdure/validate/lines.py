"""Offsets of a text as line and column numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple


class Position(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    col: int


class Lines:
    """The lines of a text, by offset and by number."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._end = len(text.rstrip())

    def position(self, offset: int) -> Position:
        """The position of an offset; the end of the last line with text for one that is further."""
        offset = min(offset, self._end)
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def at(self, line: int, col: int) -> Position:
        """A position that a parser gave, within the text."""
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        end = self.text.find("\n", start)
        width = (end if end >= 0 else len(self.text)) - start
        return self.position(start + min(max(col, 1) - 1, width))
