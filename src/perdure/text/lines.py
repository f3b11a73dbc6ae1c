"""Split a text into lines, count them, and compare two lists of lines.

Only "\\n" ends a line. A lone carriage return, a form feed or U+2028 is a character of its line, so that joining the
lines always gives back the text.

The comparison is a patience diff: it anchors on lines that are unique in both texts and recurs between the anchors.
Where there is no unique line, it takes the shortest path (Myers), a bounded number of differences at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

_MAX_DIFFERENCES = 64  # of one Myers search; bounds time to lines × this


class MatchingBlock(NamedTuple):
    """`size` equal lines, from index `a` in one text and from index `b` in the other."""

    a: int
    b: int
    size: int


class Change(NamedTuple):
    """Lines `a_start:a_end` of text `a` are replaced by lines `b_start:b_end` of text `b`."""

    a_start: int
    a_end: int
    b_start: int
    b_end: int


def split(text: str) -> list[str]:
    """Return the lines with their line ends. Only the last line may lack one."""
    *ended, last = text.split("\n")
    result = [line + "\n" for line in ended]
    if last:
        result.append(last)
    return result


def count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def number_at(text: str, offset: int) -> int:
    """Return the number, from one, of the line that holds a character."""
    return text.count("\n", 0, offset) + 1


def find_end(text: str, start: int) -> int:
    """Return the offset of the end of the line, before its line end."""
    end = text.find("\n", start)
    return len(text) if end < 0 else end


# --- comparison ------------------------------------------------------------------------------------------------


def diff(a: Sequence[str], b: Sequence[str]) -> list[Change]:
    """Return the changes that turn `a` into `b`, in order."""
    changes: list[Change] = []
    a_index = b_index = 0
    for block in [*find_matching_blocks(a, b), MatchingBlock(len(a), len(b), 0)]:
        if block.a > a_index or block.b > b_index:
            changes.append(Change(a_index, block.a, b_index, block.b))
        a_index, b_index = block.a + block.size, block.b + block.size
    return changes


def find_matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[MatchingBlock]:
    """Return the lines that both texts share, in order."""
    ids: dict[str, int] = {}  # integers compare faster than lines
    a_ids = [ids.setdefault(line, len(ids)) for line in a]
    b_ids = [ids.setdefault(line, len(ids)) for line in b]
    blocks: list[MatchingBlock] = []
    pending = [(0, len(a_ids), 0, len(b_ids))]
    while pending:
        a_start, a_end, b_start, b_end = pending.pop()
        prefix = a_start
        while a_start < a_end and b_start < b_end and a_ids[a_start] == b_ids[b_start]:
            a_start, b_start = a_start + 1, b_start + 1
        if size := a_start - prefix:
            blocks.append(MatchingBlock(prefix, b_start - size, size))
        suffix_end = a_end
        while a_start < a_end and b_start < b_end and a_ids[a_end - 1] == b_ids[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
        if a_end < suffix_end:
            blocks.append(MatchingBlock(a_end, b_end, suffix_end - a_end))
        if a_start == a_end or b_start == b_end:
            continue
        a_indexes, b_indexes = _index_lines(a_ids, a_start, a_end), _index_lines(b_ids, b_start, b_end)
        if a_indexes.keys().isdisjoint(b_indexes):
            continue
        if anchors := _find_anchors(a_indexes, b_indexes):
            for a_next, b_next in [*anchors, (a_end, b_end)]:
                pending.append((a_start, a_next, b_start, b_next))
                a_start, b_start = a_next, b_next
        else:
            blocks.extend(
                _match_by_shortest_path(a_ids[a_start:a_end], b_ids[b_start:b_end], a_start, b_start)
            )
    return _join_adjacent(sorted(blocks))


def _join_adjacent(blocks: list[MatchingBlock]) -> list[MatchingBlock]:
    joined: list[MatchingBlock] = []
    for block in blocks:
        if joined and (joined[-1].a + joined[-1].size, joined[-1].b + joined[-1].size) == (block.a, block.b):
            block = MatchingBlock(joined[-1].a, joined[-1].b, joined.pop().size + block.size)
        joined.append(block)
    return joined


def _index_lines(ids: list[int], start: int, end: int) -> dict[int, int]:
    """Map each line to its index, or to -1 if it occurs more than once."""
    indexes: dict[int, int] = {}
    for index in range(start, end):
        indexes[ids[index]] = -1 if ids[index] in indexes else index
    return indexes


def _find_anchors(a_indexes: dict[int, int], b_indexes: dict[int, int]) -> list[tuple[int, int]]:
    """Return the longest increasing sequence of lines that are unique in both texts (patience sorting)."""
    pairs = [(i, j) for line, i in a_indexes.items() if i >= 0 and (j := b_indexes.get(line, -1)) >= 0]
    pile_tops: list[int] = []
    pile_pairs: list[int] = []
    predecessors: list[int] = []
    for index, (_, j) in enumerate(pairs):
        pile = bisect_left(pile_tops, j)
        predecessors.append(pile_pairs[pile - 1] if pile else -1)
        if pile == len(pile_tops):
            pile_tops.append(j)
            pile_pairs.append(index)
        else:
            pile_tops[pile], pile_pairs[pile] = j, index
    anchors: list[tuple[int, int]] = []
    index = pile_pairs[-1] if pile_pairs else -1
    while index >= 0:
        anchors.append(pairs[index])
        index = predecessors[index]
    return anchors[::-1]


def _match_by_shortest_path(a: list[int], b: list[int], a_offset: int, b_offset: int) -> list[MatchingBlock]:
    """Match two parts that share no unique line, `_MAX_DIFFERENCES` differences at a time."""
    blocks: list[MatchingBlock] = []
    x0 = y0 = 0
    while x0 < len(a) and y0 < len(b):
        trace, k, x = _search_shortest_path(a, b, x0, y0)
        x_next, y_next = x0 + x, y0 + x - k
        for reach in reversed(trace):
            start, previous_k = _enter_diagonal(reach, k, len(a) - x0, len(b) - y0)
            if x > start:
                blocks.append(MatchingBlock(a_offset + x0 + start, b_offset + y0 + start - k, x - start))
            k, x = previous_k, reach.get(previous_k, 0)
        x0, y0 = x_next, y_next
    return blocks


def _search_shortest_path(
    a: list[int], b: list[int], x0: int, y0: int
) -> tuple[list[dict[int, int]], int, int]:
    """Return how far each diagonal reached after each difference, and the diagonal and x that came furthest."""
    n, m = len(a) - x0, len(b) - y0
    previous_reach = {1: 0}
    trace = [previous_reach]
    for differences in range(_MAX_DIFFERENCES + 1):
        reach: dict[int, int] = {}
        for k in range(-differences, differences + 1, 2):
            x, _ = _enter_diagonal(previous_reach, k, n, m)
            if x < 0:
                continue
            while x < n and x - k < m and a[x0 + x] == b[y0 + x - k]:
                x += 1
            reach[k] = x
        if reach.get(n - m) == n:
            return trace, n - m, n
        trace.append(previous_reach := reach)
    k, x = max(previous_reach.items(), key=lambda item: 2 * item[1] - item[0])
    return trace[:-1], k, x


def _enter_diagonal(reach: dict[int, int], k: int, n: int, m: int) -> tuple[int, int]:
    """Return where diagonal `k` is entered, and from which diagonal: by one deleted or one inserted line."""
    right, down = reach.get(k - 1, -2) + 1, reach.get(k + 1, -1)
    if down - k > m:
        down = -1
    return (right, k - 1) if down < right <= n else (down, k + 1)
