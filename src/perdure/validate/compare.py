"""The regressions of a change: the errors after it that were not there before it.

A file that was broken may stay broken; only new errors count. Two problems are the same if their messages are, apart
from numbers, and they come in the same order; with both texts at hand they must also be on the same line, wherever
that is after the change.

The doubts of a grammar count only if it could read the whole file before the change: then it knows the language as the
file uses it. Other doubts never count: a parser that is older than the content, or a format whose consumers accept more
than a checker can describe.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

from perdure.validate.report import Problem, Report

_NUMBERS: Final = re.compile(r"\d+")
_CHANGED: Final = 0
_BY_GRAMMAR: Final = ("c", "cpp", "css", "go", "java", "javascript", "rust", "shell", "tsx", "typescript")

LineMap = Callable[[int], int]


def regressions(before: Report, after: Report, texts: tuple[str, str] | None = None) -> list[Problem]:
    """The errors of `after` that `before` does not have: all of them if `before` was not checked."""
    if after.valid is None:
        was_read = before.valid is True and before.format == after.format
        return after.errors if was_read and after.format in _BY_GRAMMAR else []
    new = _errors(after)
    if before.valid is None or before.format != after.format:
        return new
    old = _errors(before)
    old_line, new_line = _line_maps(*texts) if texts is not None else (_unknown_line, _unknown_line)
    kinds = [_kind(p, old_line) for p in old], [_kind(p, new_line) for p in new]
    blocks = SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
    removed = _unmatched(old, {block.a + step for block in blocks for step in range(block.size)})
    added = _unmatched(new, {block.b + step for block in blocks for step in range(block.size)})
    if len(added) > len(removed):
        return added
    # An error hides what comes after it, so a later one may have been there all the time.
    first = removed[0].line if removed else 0
    return [problem for problem in added if problem.line < (old_line(first) or first)]


def _line_maps(before: str, after: str) -> tuple[LineMap, LineMap]:
    """For a line of either text its number in the new one; one number for all between the first and last difference."""
    old, new = before.splitlines(), after.splitlines()
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = min(len(old), len(new)) - start
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = min(rest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))

    def line_map(size: int) -> LineMap:
        def line(number: int) -> int:
            if number <= start:
                return number
            return number + len(new) - size if number > size - end else _CHANGED

        return line

    return line_map(len(old)), line_map(len(new))


def _unknown_line(line: int) -> int:
    return _CHANGED


def _unmatched(problems: list[Problem], matched: set[int]) -> list[Problem]:
    return [problem for index, problem in enumerate(problems) if index not in matched]


def _errors(report: Report) -> list[Problem]:
    return [problem for problem in report.errors if problem.severity == "error"]


def _kind(problem: Problem, line: LineMap) -> tuple[str, int]:
    return _NUMBERS.sub("#", problem.message), line(problem.line)
