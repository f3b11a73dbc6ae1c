"""What a change breaks: the errors after it that were not there before it.

A file that was broken may stay broken; only what is new counts. Lines move when something is inserted above,
so two problems are the same if their messages are, apart from numbers, and they come in the same order.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Final

from perdure.validate.report import Problem, Report

_NUMBERS: Final = re.compile(r"\d+")


def worse(before: Report, after: Report) -> list[Problem]:
    """The errors of `after` that `before` does not have: all of them if `before` could not be judged."""
    new = _errors(after)
    if before.valid is None or before.format != after.format:
        return new
    old = _errors(before)
    kinds = [_kind(p) for p in old], [_kind(p) for p in new]
    blocks = SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
    gone = _others(old, {block.a + step for block in blocks for step in range(block.size)})
    come = _others(new, {block.b + step for block in blocks for step in range(block.size)})
    if len(come) > len(gone):
        return come
    # An error hides what comes after it, so a later one may have been there all the time.
    return [problem for problem in come if problem.line < gone[0].line]


def _others(problems: list[Problem], matched: set[int]) -> list[Problem]:
    return [problem for index, problem in enumerate(problems) if index not in matched]


def _errors(report: Report) -> list[Problem]:
    return [problem for problem in report.errors if problem.severity == "error"]


def _kind(problem: Problem) -> str:
    return _NUMBERS.sub("#", problem.message)
