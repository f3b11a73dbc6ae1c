"""Words, and runs of one kind of bytes, found by Vectorscan: gigabytes a second, and other threads go on meanwhile."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.risk.free_list import FreeList

SHORT: Final = 199
"""The bytes of a line that is no place for a wall, and too short to be too long."""


class Scan:
    """Patterns of which the first place of each is told. Scans that run beside each other need a scratch space each.

    Raises ImportError without the engine.
    """

    def __init__(self, patterns: Sequence[bytes], *, caseless: bool = False) -> None:
        hyperscan = importlib.import_module("hyperscan")
        flags = hyperscan.HS_FLAG_SINGLEMATCH | (hyperscan.HS_FLAG_CASELESS if caseless else 0)
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=list(patterns),
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[flags] * len(patterns),
        )
        self._scratches: FreeList[Any] = FreeList(lambda: hyperscan.Scratch(self._database))

    def ends(self, data: bytes) -> list[int]:
        """Where each pattern that there is has its first end."""
        found: list[int] = []

        def seen(_number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            found.append(end)

        scratch = self._scratches.take()
        self._database.scan(data, match_event_handler=seen, scratch=scratch)
        self._scratches.give(scratch)
        return found


class Runs:
    """Raises ImportError without the engine."""

    def __init__(self, kind: bytes, length: int) -> None:
        self._length = length
        self._scan = Scan([b"%b{%d}" % (kind, length)])

    def first(self, data: bytes) -> int:
        """Where the first run of this length begins, or -1."""
        ends = self._scan.ends(data)
        return ends[0] - self._length if ends else -1


def has_only_short_lines(data: bytes) -> bool:
    """Whether that is known, by a look that takes next to nothing: as a rule it rules out much longer ones."""
    return _short_lines()(data)


@functools.cache
def _short_lines() -> Callable[[bytes], bool]:
    try:
        longer = Runs(rb"[^\n]", SHORT + 1)
    except ImportError:
        return lambda data: False
    return lambda data: longer.first(data) < 0
