"""Patterns of a policy's own. The engine takes linear time: no pattern can hang a worker."""

from __future__ import annotations

import functools
from collections import Counter
from typing import NamedTuple

import hyperscan

from perdure.risk.engine import Database, compile_patterns
from perdure.risk.settings import BadPattern, ExtraPattern


class Place(NamedTuple):
    """Where the pattern of this number matched."""

    number: int
    start: int
    end: int


@functools.lru_cache(maxsize=16)
def compile_custom(patterns: tuple[tuple[str, ExtraPattern], ...]) -> CustomPatterns:
    """The patterns compiled together. Raises BadPattern."""
    numbers: Counter[str] = Counter()
    for family, pattern in patterns:
        try:
            CustomPatterns((pattern.regex,))
        except hyperscan.error as error:
            message = f"extend_patterns.{family}, pattern {pattern.name}: {error}"
            raise BadPattern(message, family, numbers[family]) from None
        numbers[family] += 1
    return CustomPatterns(tuple(pattern.regex for _, pattern in patterns))


class CustomPatterns:
    """All patterns at once. The engine reports every end of a match; the last one of each start counts."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        flags = hyperscan.HS_FLAG_SOM_LEFTMOST | hyperscan.HS_FLAG_UTF8
        encoded = [pattern.encode() for pattern in patterns]
        self._database = Database(compile_patterns(encoded, [flags] * len(patterns)))

    def places(self, data: bytes) -> list[Place]:
        ends: dict[tuple[int, int], int] = {}

        def on_match(number: int, start: int, end: int, _flags: int, _context: object) -> None:
            ends[number, start] = end

        self._database.scan(data, on_match)
        return _drop_nested([Place(number, start, end) for (number, start), end in ends.items()])


def _drop_nested(places: list[Place]) -> list[Place]:
    """Matches of one pattern that begin inside an earlier one belong to it."""
    kept: list[Place] = []
    for place in sorted(places):
        if not kept or kept[-1].number != place.number or place.start >= kept[-1].end:
            kept.append(place)
    return kept
