"""From bytes to confirmed places: the gate says where to look, each kind of rule looks there itself.

Every hit is confirmed, by a look of bounded length, so the work is linear and no number of decoys hides a secret.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from perdure.risk import blocks, credentials, gate, pii, wrapped
from perdure.risk.assignments import WORDS, Assignments
from perdure.risk.gate import Entry
from perdure.risk.tokens import Candidate, Token, tokens

Confirm = Callable[[bytes, int], Candidate | None]
Handler = Confirm | bytes  # a rule's own look, or the word of an assignment

PLACES: Final[tuple[tuple[Entry, Confirm], ...]] = (
    *((Entry(literal), blocks.confirm) for literal in blocks.LITERALS),
    (Entry(b"eyJ"), credentials.jwt),
    (Entry(b"://"), credentials.url),
    (Entry(b"basic ", True), credentials.basic),
    (Entry(b"-u ", False, r"\s-u [^\s]{4}", 1, 8), credentials.user),
    (Entry(b"--user"), credentials.user),
)
TIERS: Final = {"precise": 0, "generic": 1, "hint": 2}
# The marks of what people wrap most: keys as a whole file, addresses with passwords.
WRAPPED_PLACES: Final = tuple(entry for entry in PLACES if entry[0].literal in (b"-----BEGIN ", b"eyJ"))
WRAPPED_MARK: Final = 4


class Scanner:
    """The rules behind one gate."""

    def __init__(self, engine: str | None = None) -> None:
        handlers: dict[Entry, list[Handler]] = {}
        for entry, confirm in (*PLACES, *pii.SHAPES):
            handlers.setdefault(entry, []).append(confirm)
        for token in tokens():
            handlers.setdefault(_entry(token), []).append(token.confirm)
        for word in WORDS:
            handlers.setdefault(word, []).append(word.literal)
        for mark, confirm, window in _wrapped_marks():
            for wrapping in wrapped.wrappings(mark):
                look = functools.partial(wrapped.confirm, wrapping, confirm, window)
                handlers.setdefault(Entry(wrapping.literal), []).append(look)
        self._handlers: list[Sequence[Handler]] = list(handlers.values())
        self._gate = gate.build(list(handlers), engine)

    def scan(self, data: bytes) -> list[Candidate]:
        """Every secret, none inside another, in the order of the text."""
        found: list[Candidate] = []
        assignments = Assignments(data)
        handlers = self._handlers
        for number, at in self._gate.hits(data):
            for handler in handlers[number]:
                if isinstance(handler, bytes):
                    candidate = assignments.at(at, handler)
                else:
                    candidate = handler(data, at)
                if candidate is not None:
                    found.append(candidate)
        return apart(found) if len(found) > 1 else found


def _entry(token: Token) -> Entry:
    return Entry(token.literal.encode(), False, *token.trigger)


def _wrapped_marks() -> list[tuple[bytes, Confirm, int]]:
    """What is looked for in base64 too, and how much base64 it takes."""
    marks = [(entry.literal, confirm, wrapped.WINDOW) for entry, confirm in WRAPPED_PLACES]
    return marks + [
        (token.literal.encode(), token.confirm, token.reach * 4 // 3 + 8)
        for token in tokens()
        if token.tier == "precise" and not token.back and len(token.literal) >= WRAPPED_MARK
    ]


def apart(found: list[Candidate]) -> list[Candidate]:
    """Of places that overlap, the one of the better tier, the higher rank, the greater length."""
    if all(before.end <= after.start for before, after in pairwise(found)):
        return found
    best = sorted(found, key=lambda each: (TIERS[each.tier], -each.rank, each.start - each.end, each.start))
    kept: list[Candidate] = []
    starts: list[int] = []
    for candidate in best:
        place = bisect_left(starts, candidate.end)
        if place and kept[place - 1].end > candidate.start:
            continue
        place = bisect_left(starts, candidate.start)
        starts.insert(place, candidate.start)
        kept.insert(place, candidate)
    return kept


@functools.cache
def default_scanner() -> Scanner:
    return Scanner()
