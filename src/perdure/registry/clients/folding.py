"""A large text made small for the time of its changes: what none of them touches is folded into a mark.

Every change of a text reads it anew, before and after, so that it says what was meant. A client's file can hold
megabytes beside the few servers that change; with those folded away, many changes cost hardly more than one. What a
format may fold is its own business; the marks are put back as what they stand for, and the whole is checked once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from perdure.registry.clients.splices import Splice, spliced

WORTH_IT = 200  # characters; less is not missed


class Fold(NamedTuple):
    """A span of the text, and what stands there meanwhile, around its mark."""

    start: int
    end: int
    before: str = ""
    after: str = ""


class Folded(NamedTuple):
    text: str
    unfolded: Callable[[str], str]


def folded(text: str, folds: Iterable[Fold]) -> Folded:
    """The text with marks instead of these spans, and how it becomes whole again after it was changed."""
    word = "perdure-folded"
    while word in text:
        word += "-"
    kept = [fold for fold in folds if fold.end - fold.start >= WORTH_IT]
    marks = [
        Splice(fold.start, fold.end, f"{fold.before}{word}:{number}.{fold.after}")
        for number, fold in enumerate(kept)
    ]

    def unfolded(changed: str) -> str:
        splices = []
        for found in re.finditer(rf"{word}:([0-9]+)\.", changed):
            fold = kept[int(found[1])]
            start, end = found.start() - len(fold.before), found.end() + len(fold.after)
            splices.append(Splice(start, end, text[fold.start : fold.end]))
        return spliced(changed, splices)

    return Folded(spliced(text, marks), unfolded)


def runs(members: Iterable[tuple[bool, Any]]) -> list[tuple[Any, Any]]:
    """The first and the last of every run of members that may be folded."""
    found: list[tuple[Any, Any]] = []
    is_open = False
    for may_be, member in members:
        if may_be and is_open:
            found[-1] = (found[-1][0], member)
        elif may_be:
            found.append((member, member))
        is_open = may_be
    return found
