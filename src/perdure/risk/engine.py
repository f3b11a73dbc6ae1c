"""The pattern engine: Vectorscan, by the `hyperscan` package. It reads gigabytes a second in linear time.

Prefilter(entries).hits(data)       where each literal or short pattern is
FirstMatches(patterns).ends(data)   the first end of each pattern
"""

from __future__ import annotations

import hashlib
import operator
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import hyperscan

from perdure.risk.candidates import Entry

T = TypeVar("T")


class DatabaseCache(Protocol):
    """Where a compiled database is kept from one process to the next. Neither method raises."""

    def load(self, key: str) -> bytes | None: ...
    def save(self, key: str, data: bytes) -> None: ...


class _NoCache:
    def load(self, key: str) -> bytes | None:
        return None

    def save(self, key: str, data: bytes) -> None:
        pass


cache: DatabaseCache = _NoCache()
"""Set before the first scan."""


class FreeList(Generic[T]):
    """A free list for objects that are expensive to create. Safe for several threads; keeps as many objects as were
    ever in use at the same time."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._free: list[T] = []

    def take(self) -> T:
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give(self, thing: T) -> None:
        """An object that an error kept from being given back is replaced by a new one."""
        self._free.append(thing)


class Database:
    """Compiled patterns. Concurrent scans need a scratch space each."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._scratches: FreeList[Any] = FreeList(lambda: hyperscan.Scratch(compiled))

    def scan(self, data: bytes, on_match: Callable[[int, int, int, int, object], None]) -> None:
        scratch = self._scratches.take()
        self._compiled.scan(data, on_match, 0, None, scratch)
        self._scratches.give(scratch)


def compile_patterns(patterns: Sequence[bytes], flags: Sequence[int]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=list(patterns), ids=list(range(len(patterns))), elements=len(patterns), flags=list(flags)
    )
    return database


class Prefilter:
    """One pass over the bytes that says where it is worth looking: literals and short patterns of fixed width."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._back = [entry.width - entry.lead if entry.trigger else len(entry.literal) for entry in entries]
        self._database = Database(_load_or_compile(entries))

    def hits(self, data: bytes) -> Iterable[tuple[int, int]]:
        """The number of an entry and the offset of its literal, in the order of the text."""
        numbers: list[int] = []
        ends: list[int] = []

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            numbers.append(number)
            ends.append(end)

        self._database.scan(data, on_match)
        if not numbers:
            return ()
        return zip(numbers, map(operator.sub, ends, map(self._back.__getitem__, numbers)), strict=True)


def _load_or_compile(entries: Sequence[Entry]) -> Any:
    """Compiling takes many times longer than loading; the engine itself rejects a foreign database."""
    release = hyperscan.__version__  # type: ignore[attr-defined]
    version = repr((release, platform.machine(), [tuple(entry) for entry in entries]))
    key = hashlib.sha256(version.encode()).hexdigest()[:32]
    data = cache.load(key)
    if data is not None:
        try:
            return hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
        except hyperscan.error:
            pass
    flags = [hyperscan.HS_FLAG_CASELESS if entry.caseless else 0 for entry in entries]
    database = compile_patterns([entry.pattern for entry in entries], flags)
    cache.save(key, hyperscan.dumpb(database))
    return database


class FirstMatches:
    """Patterns of which only the first match of each is reported. Other threads go on meanwhile."""

    def __init__(self, patterns: Sequence[bytes], *, caseless: bool = False) -> None:
        flags = hyperscan.HS_FLAG_SINGLEMATCH | (hyperscan.HS_FLAG_CASELESS if caseless else 0)
        self._database = Database(compile_patterns(patterns, [flags] * len(patterns)))

    def ends(self, data: bytes) -> list[int]:
        """Where each pattern that occurs has its first end."""
        ends: list[int] = []

        def on_match(_number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end)

        self._database.scan(data, on_match)
        return ends
