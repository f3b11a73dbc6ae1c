"""Brackets that do not match, placed where a person would put them right.

    problems = unbalanced([("(", 4), ("]", 9)], lines)

Matching alone finds *that* a bracket is missing, at the end of the file or at some later bracket. Where the
counts show that one is missing, the indentation decides *which*: a closing bracket at the start of a line
belongs to the line with the same indentation that opened one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem

ENOUGH: Final = 20
PAIRS: Final = {"(": ")", "[": "]", "{": "}"}
_OPENER_OF: Final = {closer: opener for opener, closer in PAIRS.items()}


class Bracket(NamedTuple):
    """An opening bracket that still waits for its closing one."""

    mark: str
    place: Place
    indent: int


def balanced(tokens: Iterable[tuple[str, int]]) -> bool:
    stack: list[str] = []
    for mark, _ in tokens:
        if mark in PAIRS:
            stack.append(mark)
        elif not stack or stack.pop() != _OPENER_OF[mark]:
            return False
    return not stack


def unbalanced(tokens: Sequence[tuple[str, int]], lines: Lines) -> list[Problem]:
    """Every bracket without its partner; empty if all match."""
    if balanced(tokens):
        return []
    return _Matcher(tokens, lines).run()


class _Matcher:
    def __init__(self, tokens: Sequence[tuple[str, int]], lines: Lines) -> None:
        self.tokens = tokens
        self.lines = lines
        self.stack: list[Bracket] = []
        self.problems: list[Problem] = []
        count: dict[str, int] = {}
        for mark, _ in tokens:
            count[mark] = count.get(mark, 0) + 1
        self.surplus = {o: count.get(o, 0) - count.get(c, 0) for o, c in PAIRS.items()}

    def run(self) -> list[Problem]:
        for mark, offset in self.tokens:
            place = self.lines.place(offset)
            if mark in PAIRS:
                self.stack.append(Bracket(mark, place, self.lines.indent(place.line)))
            else:
                self._close(mark, place)
            if len(self.problems) > ENOUGH:
                return self.problems
        for left in reversed(self.stack[-ENOUGH:]):
            self._unclosed(left, self.lines.end())
        return self.problems

    def _close(self, mark: str, place: Place) -> None:
        opener = _OPENER_OF[mark]
        first = self.lines.first_on_line(place)
        if first and self.surplus[opener] > 0:
            self._drop_deeper(opener, place)
        if self.surplus[opener] < 0 and self._belongs_elsewhere(opener, place, first):
            self._stray(mark, place)
            return
        if not self.stack:
            self._stray(mark, place)
        elif self.stack[-1].mark == opener:
            self.stack.pop()
        elif self._is_open(opener, place):
            while self.stack[-1].mark != opener:
                self._unclosed(self.stack.pop(), place)
            self.stack.pop()
        else:
            self._stray(mark, place)

    def _is_open(self, opener: str, place: Place) -> bool:
        """Whether an opener below the top may be meant: a brace may pass over parentheses, not they over it."""
        for left in reversed(self.stack):
            if left.mark == opener:
                return True
            if left.mark == "{" and left.place.line != place.line:
                return False
        return False

    def _drop_deeper(self, opener: str, place: Place) -> None:
        """Give up openers indented deeper than the line that this closing bracket belongs to."""
        indent = self.lines.indent(place.line)
        if not any(left.mark == opener and left.indent == indent for left in self.stack):
            return
        while self.stack[-1].indent > indent or self._ended_before(opener, place, indent):
            left = self.stack.pop()
            self.surplus[left.mark] -= 1
            self._unclosed(left, place)

    def _ended_before(self, opener: str, place: Place, indent: int) -> bool:
        """Whether the block on top ends before this line by its layout, and the one below fits as well."""
        if (
            len(self.stack) < 2
            or [(left.mark, left.indent) for left in self.stack[-2:]] != [(opener, indent)] * 2
        ):
            return False
        line = self.stack[-1].place.line
        after = self.lines.end_of_block(line, place.line - 1).line
        return line + 1 < after < place.line and not self.lines.is_blank(after) and self.surplus[opener] > 0

    def _belongs_elsewhere(self, opener: str, place: Place, first: bool) -> bool:
        """Whether the opener on top waits for a closing bracket at the start of a line further out."""
        top = self.stack[-1] if self.stack else None
        if top is None or top.mark != opener:
            return False
        if first and top.indent == self.lines.indent(place.line):
            header = self.lines.header_of(place.line)
            return header is not None and header > top.place.line and opener not in self.lines.row(header)
        if top.indent >= self.lines.indent(place.line):
            return False
        return first or not self.lines.row(top.place.line)[top.place.col :].strip()

    def _unclosed(self, left: Bracket, found: Place) -> None:
        closer = PAIRS[left.mark]
        place = self._fix_place(left, found)
        message = f"'{closer}' is missing: '{left.mark}' was opened at {left.place.said()}"
        self.problems.append(Problem(*place, message))
        if abs(place.line - left.place.line) > 1:
            self.problems.append(Problem(*left.place, f"'{left.mark}' opened here is never closed"))

    def _fix_place(self, left: Bracket, found: Place) -> Place:
        line = left.place.line
        if found.line == line:
            return found
        rest = self.lines.row(line)[left.place.col :].strip()
        if not rest or self.lines.continues(line):
            return self.lines.end_of_block(line, found.line - 1)
        return self.lines.end_of(line)

    def _stray(self, mark: str, place: Place) -> None:
        opener = _OPENER_OF[mark]
        self.surplus[opener] += 1
        self.problems.append(Problem(*place, f"'{mark}' has no '{opener}' before it"))
        header = self.lines.header_of(place.line) if self.lines.first_on_line(place) else None
        if header is not None and opener not in self.lines.row(header) and place.line - header > 1:
            expected = self.lines.end_of(header)
            self.problems.append(
                Problem(*expected, f"'{opener}' may be missing here: line {place.line} closes it")
            )
