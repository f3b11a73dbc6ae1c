"""One pass over the bytes that says where it is worth looking.

The gate knows only literals and short patterns of fixed width, so it is linear, and small enough to be built at
the first scan. Vectorscan (`hyperscan`) does it at gigabytes a second; without it RE2, and without that `re`, do
the same more slowly over one prefix tree of all literals.
"""

from __future__ import annotations

import hashlib
import importlib
import operator
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from perdure.risk import trie
from perdure.risk.free_list import FreeList

ENGINES: Final = ("hyperscan", "re2", "re")
# A shorter literal is everywhere; the engines without triggers look for its trigger instead.
TREE_LITERAL: Final = 3


Hits = Iterable[tuple[int, int]]


class Entry(NamedTuple):
    """A literal, and the pattern of fixed `width` with it (`lead` before it); "" for the literal alone."""

    literal: bytes
    caseless: bool = False
    trigger: str = ""
    lead: int = 0
    width: int = 0

    @property
    def pattern(self) -> bytes:
        return self.trigger.encode() or re.escape(self.literal)


class Gate(Protocol):
    """Yields the number of an entry and where its literal is, in the order of the text; () where there is none."""

    def hits(self, data: bytes) -> Hits: ...


def build(entries: Sequence[Entry], engine: str | None = None) -> Gate:
    """The gate of the best engine there is, or of the one that is asked for."""
    for name in (engine,) if engine else ENGINES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return Vectorscan(module, entries) if name == "hyperscan" else PrefixTree(module.compile, entries)
    raise RuntimeError(f"there is no pattern engine {engine}")


class Shelf(Protocol):
    """Where a compiled database is kept from one process to the next. Neither raises."""

    def load(self, key: str) -> bytes | None: ...
    def save(self, key: str, data: bytes) -> None: ...


class _Nowhere:
    def load(self, key: str) -> bytes | None:
        return None

    def save(self, key: str, data: bytes) -> None:
        pass


shelf: Shelf = _Nowhere()
"""Set before the first scan."""


def _kept(hyperscan: Any, entries: Sequence[Entry]) -> Any:
    """Compiling takes many times longer than loading what was compiled; the engine itself knows a foreign one."""
    told = repr((hyperscan.__version__, platform.machine(), [tuple(entry) for entry in entries]))
    key = hashlib.sha256(told.encode()).hexdigest()[:32]
    data = shelf.load(key)
    if data is not None:
        try:
            return hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
        except hyperscan.error:
            pass
    made = _compiled(hyperscan, entries)
    shelf.save(key, hyperscan.dumpb(made))
    return made


def _compiled(hyperscan: Any, entries: Sequence[Entry]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[entry.pattern for entry in entries],
        ids=list(range(len(entries))),
        elements=len(entries),
        flags=[hyperscan.HS_FLAG_CASELESS if entry.caseless else 0 for entry in entries],
    )
    return database


class Vectorscan:
    """All entries in one database. Scans that run beside each other need a scratch space each."""

    def __init__(self, hyperscan: Any, entries: Sequence[Entry]) -> None:
        self._back = [entry.width - entry.lead if entry.trigger else len(entry.literal) for entry in entries]
        self._database = _kept(hyperscan, entries)
        self._scratches: FreeList[Any] = FreeList(lambda: hyperscan.Scratch(self._database))

    def hits(self, data: bytes) -> Hits:
        numbers: list[int] = []
        ends: list[int] = []

        def seen(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            numbers.append(number)
            ends.append(end)

        scratch = self._scratches.take()
        self._database.scan(data, seen, 0, None, scratch)
        self._scratches.give(scratch)
        if not numbers:
            return ()
        return zip(numbers, map(operator.sub, ends, map(self._back.__getitem__, numbers)), strict=True)


class PrefixTree:
    """A pattern over the lower-case text. It names the longest literal of a place; the shorter follow from it."""

    def __init__(self, compile: Callable[[bytes], Any], entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._numbers: dict[bytes, list[int]] = {}
        dense: list[int] = []
        for number, entry in enumerate(entries):
            if len(entry.literal) < TREE_LITERAL:
                dense.append(number)
            else:
                self._numbers.setdefault(entry.literal.lower(), []).append(number)
        self._tree = compile(trie.pattern(self._numbers))
        self._dense = [(number, compile(entries[number].pattern)) for number in dense]

    def hits(self, data: bytes) -> list[tuple[int, int]]:
        found = list(self._in_tree(data))
        for number, pattern in self._dense:
            lead = self._entries[number].lead
            found += [(number, match.start() + lead) for match in pattern.finditer(data)]
        return sorted(found, key=lambda hit: hit[1])

    def _in_tree(self, data: bytes) -> Iterator[tuple[int, int]]:
        lower = data.lower()
        at = 0
        while match := self._tree.search(lower, at):
            at = match.start()
            literal = match[0]
            for length in range(TREE_LITERAL, len(literal) + 1):
                for number in self._numbers.get(literal[:length], ()):
                    entry = self._entries[number]
                    if entry.caseless or data.startswith(entry.literal, at):
                        yield number, at
            at += 1
