"""What a change breaks: the errors after it that were not there before it.

A file that was broken may stay broken; only what is new counts. Two problems are the same if their messages are, apart
from numbers, and they come in the same order; with both texts at hand they must also stand on the same line, wherever
that is after the change.
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

Lines = Callable[[int], int]


def worse(before: Report, after: Report, texts: tuple[str, str] | None = None) -> list[Problem]:
    """The errors of `after` that `before` does not have: all of them if `before` could not be judged."""
    new = _errors(after)
    if before.valid is None or before.format != after.format:
        return new
    old = _errors(before)
    old_line, new_line = _lines(*texts) if texts is not None else (_anywhere, _anywhere)
    kinds = [_kind(p, old_line) for p in old], [_kind(p, new_line) for p in new]
    blocks = SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
    gone = _others(old, {block.a + step for block in blocks for step in range(block.size)})
    come = _others(new, {block.b + step for block in blocks for step in range(block.size)})
    if len(come) > len(gone):
        return come
    # An error hides what comes after it, so a later one may have been there all the time.
    first = gone[0].line if gone else 0
    return [problem for problem in come if problem.line < (old_line(first) or first)]


def _lines(before: str, after: str) -> tuple[Lines, Lines]:
    """For a line of either text its number in the new one; one number for all between the first and last difference."""
    old, new = before.splitlines(), after.splitlines()
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = min(len(old), len(new)) - start
    pairs = zip(reversed(old), reversed(new), strict=False)
    end = min(rest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))

    def of(size: int) -> Lines:
        def line(number: int) -> int:
            if number <= start:
                return number
            return number + len(new) - size if number > size - end else _CHANGED

        return line

    return of(len(old)), of(len(new))


def _anywhere(line: int) -> int:
    return _CHANGED


def _others(problems: list[Problem], matched: set[int]) -> list[Problem]:
    return [problem for index, problem in enumerate(problems) if index not in matched]


def _errors(report: Report) -> list[Problem]:
    return [problem for problem in report.errors if problem.severity == "error"]


def _kind(problem: Problem, line: Lines) -> tuple[str, int]:
    return _NUMBERS.sub("#", problem.message), line(problem.line)
