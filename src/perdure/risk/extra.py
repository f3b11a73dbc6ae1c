"""Patterns of a policy's own. Only an engine that takes linear time gets them: no pattern can hang a worker."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from typing import Any, NamedTuple, Protocol

from perdure.risk.free_list import FreeList
from perdure.risk.settings import ExtraPattern


class BadPattern(ValueError):
    """A pattern that the engine does not take: its family, and its number there."""

    def __init__(self, message: str, family: str, number: int) -> None:
        super().__init__(message)
        self.family = family
        self.number = number


class Place(NamedTuple):
    """Where the pattern of this number matched."""

    number: int
    start: int
    end: int


class Finder(Protocol):
    def places(self, data: bytes) -> list[Place]: ...


@functools.lru_cache(maxsize=16)
def finder(patterns: tuple[tuple[str, ExtraPattern], ...]) -> Finder:
    """The patterns compiled together. Raises BadPattern, or ValueError where no engine is installed."""
    for module, kind in (("hyperscan", Vectorscan), ("re2", LinearTime)):
        try:
            engine = importlib.import_module(module)
        except ImportError:
            continue
        numbers: Counter[str] = Counter()
        for family, pattern in patterns:
            try:
                kind(engine, (pattern.regex,))
            except (engine.error, ValueError) as error:
                message = f"extend_patterns.{family}, pattern {pattern.name}: {error}"
                raise BadPattern(message, family, numbers[family]) from None
            numbers[family] += 1
        return kind(engine, tuple(pattern.regex for _, pattern in patterns))
    raise ValueError(
        "extend_patterns needs an engine that takes linear time: install hyperscan or google-re2"
    )


class Vectorscan:
    """All patterns at once. It reports every end of a match; the last one of each start counts."""

    def __init__(self, hyperscan: Any, patterns: tuple[str, ...]) -> None:
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[pattern.encode() for pattern in patterns],
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[hyperscan.HS_FLAG_SOM_LEFTMOST | hyperscan.HS_FLAG_UTF8] * len(patterns),
        )
        self._scratches: FreeList[Any] = FreeList(lambda: hyperscan.Scratch(self._database))

    def places(self, data: bytes) -> list[Place]:
        ends: dict[tuple[int, int], int] = {}

        def seen(number: int, start: int, end: int, _flags: int, _context: object) -> None:
            ends[number, start] = end

        scratch = self._scratches.take()
        self._database.scan(data, match_event_handler=seen, scratch=scratch)
        self._scratches.give(scratch)
        return _apart([Place(number, start, end) for (number, start), end in ends.items()])


class LinearTime:
    """One pass for each pattern, by RE2."""

    def __init__(self, re2: Any, patterns: tuple[str, ...]) -> None:
        options = re2.Options()
        options.log_errors = False
        self._patterns = [re2.compile(pattern.encode(), options) for pattern in patterns]
        if any(pattern.match(b"") for pattern in self._patterns):
            raise ValueError("the pattern matches nothing at all")

    def places(self, data: bytes) -> list[Place]:
        return [
            Place(number, *found.span())
            for number, pattern in enumerate(self._patterns)
            for found in pattern.finditer(data)
        ]


def _apart(places: list[Place]) -> list[Place]:
    """Matches of one pattern that begin inside an earlier one belong to it."""
    kept: list[Place] = []
    for place in sorted(places):
        if not kept or kept[-1].number != place.number or place.start >= kept[-1].end:
            kept.append(place)
    return kept
