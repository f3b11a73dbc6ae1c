"""The lines of a text, counted.

What two texts share is in `shared_lines.py`, which loads fast; its names are offered here, too.
"""

from __future__ import annotations

from perdure.text.common_lines import Block, Change, changes, matching, split

__all__ = [
    "Block",
    "Change",
    "changes",
    "line_end",
    "matching",
    "number_at",
    "split",
    "total",
]


def total(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def number_at(text: str, offset: int) -> int:
    """The line that holds a character, from one."""
    return text.count("\n", 0, offset) + 1


def line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end
