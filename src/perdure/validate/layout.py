"""Where things stand in a text: lines, columns, indentation, and where an indented block ends.

Indentation tells what the writer meant. A missing bracket is often noticed only at the end of a file; the
block that it should have closed ends where the lines fall back to the indentation of the opening one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

TAB_WIDTH = 4
# What stands as far out as the line that opened the block it is in.
_LABEL = re.compile(r"\s*(?:case\b[^{}]*|default|public|private|protected|signals|\w+ slots)\s*:\s*(?://.*)?")
_CONTINUES = (",", "(", "[", "{", "=", "+", "-", "*", "/", "|", "&", "\\", ".", "?", ":", "<")


class Place(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    col: int

    def said(self) -> str:
        return f"line {self.line}"


class Lines:
    """The lines of a text, by offset and by number."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.rows = text.split("\n")
        self._leads: dict[int, int] = {}
        self._starts = [0]
        for row in self.rows:
            self._starts.append(self._starts[-1] + len(row) + 1)

    def place(self, offset: int) -> Place:
        if offset > len(self.text):
            offset = len(self.text)
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    def offset(self, line: int) -> int:
        return self._starts[line - 1]

    def row(self, line: int) -> str:
        return self.rows[line - 1] if 0 < line <= len(self.rows) else ""

    def lead(self, line: int) -> int:
        """How many characters of white space a line starts with."""
        if line not in self._leads:
            row = self.row(line)
            self._leads[line] = len(row) - len(row.lstrip())
        return self._leads[line]

    def indent(self, line: int) -> int:
        return len(self.row(line)[: self.lead(line)].expandtabs(TAB_WIDTH))

    def is_blank(self, line: int) -> bool:
        return not self.row(line).strip()

    def first_on_line(self, place: Place) -> bool:
        return place.col - 1 <= self.lead(place.line)

    def end(self) -> Place:
        """The end of the last line that has something on it."""
        line = len(self.rows)
        while line > 1 and self.is_blank(line):
            line -= 1
        return self.end_of(line)

    def end_of(self, line: int) -> Place:
        return Place(line, len(self.row(line).rstrip()) + 1)

    def end_of_block(self, line: int, last: int) -> Place:
        """Where the lines indented deeper than `line` end, looking no further than `last`."""
        depth = self.indent(line)
        end = line
        for number in range(line + 1, min(last, len(self.rows)) + 1):
            if self.is_blank(number):
                continue
            if self.indent(number) <= depth:
                break
            end = number
        after = end + 1
        if end == line or after > len(self.rows):
            return self.end_of(end)
        return Place(after, self.lead(after) + 1)

    def header_of(self, line: int) -> int | None:
        """The line above that a block ending at `line` belongs to, if lines between are deeper."""
        depth = self.indent(line)
        number = line - 1
        while number > 0 and (
            self.is_blank(number) or self.indent(number) > depth or _LABEL.fullmatch(self.row(number))
        ):
            number -= 1
        deeper = any(not self.is_blank(between) for between in range(number + 1, line))
        return number if number > 0 and deeper and self.indent(number) == depth else None

    def continues(self, line: int) -> bool:
        """Whether a line plainly goes on in the next one."""
        return self.row(line).rstrip().endswith(_CONTINUES)
