"""From bytes to confirmed places: the gate says where to look, each kind of rule looks there itself.

Every hit is confirmed, by a look of bounded length, so the work is linear and no number of decoys hides a secret.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.risk import blocks, credentials, gate, pii
from perdure.risk.assignments import WORDS, Assignments
from perdure.risk.candidates import Candidate, Confirm, apart
from perdure.risk.gate import Entry
from perdure.risk.tokens import Token, tokens
from perdure.risk.wrapped import Wrapped, Wrapping, wrappings

PLACES: Final[tuple[tuple[Entry, Confirm], ...]] = (
    *((Entry(literal), blocks.confirm) for literal in blocks.LITERALS),
    (Entry(b"eyJ", False, r"\beyJ", 0, 3), credentials.jwt),
    (Entry(b"://"), credentials.url),
    (Entry(b"basic ", True), credentials.basic),
    (Entry(b"-u ", False, r"\s-u [^\s]{4}", 1, 8), credentials.user),
    (Entry(b"--user"), credentials.user),
)
# The marks of what people wrap most: keys as a whole file, addresses with passwords.
WRAPPED_PLACES: Final = tuple(entry for entry in PLACES if entry[0].literal in (b"-----BEGIN ", b"eyJ"))
WRAPPED_MARK: Final = 4


class Rules(msgspec.Struct):
    """What looks at one entry's hits: for a whole secret, for an assigned one, for one in base64."""

    looks: list[Confirm] = []
    words: list[bytes] = []
    wrappings: list[Wrapping] = []


class Scanner:
    """The rules behind one gate."""

    def __init__(self, engine: str | None = None) -> None:
        rules: dict[Entry, Rules] = {}
        for entry, confirm in (*PLACES, *pii.SHAPES):
            rules.setdefault(entry, Rules()).looks.append(confirm)
        for token in tokens():
            rules.setdefault(_entry(token), Rules()).looks.append(token.confirm)
        for word in WORDS:
            rules.setdefault(word, Rules()).words.append(word.literal)
        for wrapping in _wrappings():
            rules.setdefault(Entry(wrapping.literal), Rules()).wrappings.append(wrapping)
        self._rules = [(each.looks, each.words, each.wrappings) for each in rules.values()]
        self._gate = gate.build(list(rules), engine)

    def scan(self, data: bytes) -> list[Candidate]:
        """Every secret, none inside another, in the order of the text."""
        hits = self._gate.hits(data)
        found: list[Candidate] = []
        if not hits:
            return found
        rules = self._rules
        assigned, wrapped = Assignments(data).at, Wrapped(data).at
        for number, at in hits:
            looks, words, wrappings = rules[number]
            for look in looks:
                if (candidate := look(data, at)) is not None:
                    found.append(candidate)
            for word in words:
                if (candidate := assigned(at, word)) is not None:
                    found.append(candidate)
            for wrapping in wrappings:
                if (candidate := wrapped(at, wrapping)) is not None:
                    found.append(candidate)
        return apart(found) if len(found) > 1 else found


def _entry(token: Token) -> Entry:
    return Entry(token.literal.encode(), False, *token.trigger)


def _wrappings() -> Iterable[Wrapping]:
    """What is looked for in base64 too."""
    for entry, confirm in WRAPPED_PLACES:
        yield from wrappings(entry.literal, confirm)
    for token in tokens():
        if token.tier == "precise" and not token.back and len(token.literal) >= WRAPPED_MARK:
            yield from wrappings(token.literal.encode(), token.confirm)


@functools.cache
def default_scanner() -> Scanner:
    return Scanner()
