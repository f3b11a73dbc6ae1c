"""Split a text into lines, count them, and compare two lists of lines.

A line ends with "\\n" and with nothing else: a lone carriage return, a form feed or U+2028 is a character
of its line, so that joining the lines always gives back the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_REACH = 64  # differences followed at once where no line is unique; bounds time to lines × reach


class Block(NamedTuple):
    """`size` equal lines, from `a` in one text and from `b` in the other."""

    a: int
    b: int
    size: int


class Change(NamedTuple):
    """The lines `a0:a1` of one text stand where the other has `b0:b1`."""

    a0: int
    a1: int
    b0: int
    b1: int


def split(text: str) -> list[str]:
    """The lines with their ends; only the last may lack one."""
    *whole, last = text.split("\n")
    found = [line + "\n" for line in whole]
    if last:
        found.append(last)
    return found


def total(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def number_at(text: str, offset: int) -> int:
    """The line that holds a character, from one."""
    return text.count("\n", 0, offset) + 1


def line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


# --- comparison ------------------------------------------------------------------------------------------------


def changes(a: Sequence[str], b: Sequence[str]) -> list[Change]:
    """What separates two texts, in order."""
    found: list[Change] = []
    at_a = at_b = 0
    for block in [*matching(a, b), Block(len(a), len(b), 0)]:
        if block.a > at_a or block.b > at_b:
            found.append(Change(at_a, block.a, at_b, block.b))
        at_a, at_b = block.a + block.size, block.b + block.size
    return found


def matching(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """The lines that both texts hold, in order: anchored on unique lines, then by shortest path."""
    names: dict[str, int] = {}
    one = [names.setdefault(line, len(names)) for line in a]
    two = [names.setdefault(line, len(names)) for line in b]
    found: list[Block] = []
    pending = [(0, len(one), 0, len(two))]
    while pending:
        a0, a1, b0, b1 = pending.pop()
        start = a0
        while a0 < a1 and b0 < b1 and one[a0] == two[b0]:
            a0, b0 = a0 + 1, b0 + 1
        if a0 > start:
            found.append(Block(start, b0 - (a0 - start), a0 - start))
        end = a1
        while a0 < a1 and b0 < b1 and one[a1 - 1] == two[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
        if a1 < end:
            found.append(Block(a1, b1, end - a1))
        if a0 == a1 or b0 == b1:
            continue
        in_a, in_b = _unique(one, a0, a1), _unique(two, b0, b1)
        if in_a.keys().isdisjoint(in_b):
            continue
        if anchors := _anchors(in_a, in_b):
            for next_a, next_b in [*anchors, (a1, b1)]:
                pending.append((a0, next_a, b0, next_b))
                a0, b0 = next_a, next_b
        else:
            found.extend(_walked(one[a0:a1], two[b0:b1], a0, b0))
    return _joined(sorted(found))


def _joined(blocks: list[Block]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        if found and found[-1].a + found[-1].size == block.a and found[-1].b + found[-1].size == block.b:
            block = Block(found[-1].a, found[-1].b, found.pop().size + block.size)
        found.append(block)
    return found


def _unique(names: list[int], start: int, end: int) -> dict[int, int]:
    """Where each line stands; -1 for one that stands in several places."""
    found: dict[int, int] = {}
    for index in range(start, end):
        found[names[index]] = -1 if names[index] in found else index
    return found


def _anchors(in_a: dict[int, int], in_b: dict[int, int]) -> list[tuple[int, int]]:
    """The longest rising run of lines that are unique on both sides (patience)."""
    pairs = [(i, j) for name, i in in_a.items() if i >= 0 and (j := in_b.get(name, -1)) >= 0]
    tops: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        before.append(piles[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(j)
            piles.append(index)
        else:
            tops[pile], piles[pile] = j, index
    found: list[tuple[int, int]] = []
    at = piles[-1] if piles else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _walked(a: list[int], b: list[int], from_a: int, from_b: int) -> list[Block]:
    """What two parts share that have no unique line in common, `_REACH` differences at a time."""
    found: list[Block] = []
    x0 = y0 = 0
    while x0 < len(a) and y0 < len(b):
        trace, k, x = _walk(a, b, x0, y0)
        reached = x0 + x, y0 + x - k
        for last in reversed(trace):
            start, k_before = _onto(last, k, len(a) - x0, len(b) - y0)
            if x > start:
                found.append(Block(from_a + x0 + start, from_b + y0 + start - k, x - start))
            k, x = k_before, last.get(k_before, 0)
        x0, y0 = reached
    return found


def _walk(a: list[int], b: list[int], x0: int, y0: int) -> tuple[list[dict[int, int]], int, int]:
    """The shortest path (Myers): how far each diagonal came at each step, and the one that came furthest."""
    n, m = len(a) - x0, len(b) - y0
    last = {1: 0}
    trace = [last]
    for steps in range(_REACH + 1):
        reach: dict[int, int] = {}
        for k in range(-steps, steps + 1, 2):
            x, _ = _onto(last, k, n, m)
            if x < 0:
                continue
            while x < n and x - k < m and a[x0 + x] == b[y0 + x - k]:
                x += 1
            reach[k] = x
        if reach.get(n - m) == n:
            return trace, n - m, n
        trace.append(last := reach)
    k, x = max(last.items(), key=lambda item: 2 * item[1] - item[0])
    return trace[:-1], k, x


def _onto(last: dict[int, int], k: int, n: int, m: int) -> tuple[int, int]:
    """Where diagonal `k` is entered and from which: one line deleted, or one inserted."""
    right, down = last.get(k - 1, -2) + 1, last.get(k + 1, -1)
    if down - k > m:
        down = -1
    return (right, k - 1) if down < right <= n else (down, k + 1)
