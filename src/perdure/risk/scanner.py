"""From bytes to confirmed places: the prefilter says where to look, each kind of rule looks there itself.

Every hit is confirmed, by a look of bounded length, so the work is linear and no number of decoys hides a secret.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

import msgspec

from perdure.risk import credentials, pii, private_keys
from perdure.risk.assignments import WORDS, Assignments
from perdure.risk.base64_secrets import EncodedMark, EncodedSecrets, encoded_marks
from perdure.risk.candidates import Candidate, Confirm, Entry, drop_overlaps
from perdure.risk.engine import Prefilter
from perdure.risk.tokens import Token, tokens

PLACES: Final[tuple[tuple[Entry, Confirm], ...]] = (
    *((Entry(literal), private_keys.confirm) for literal in private_keys.LITERALS),
    (Entry(b"eyJ", False, r"\beyJ", 0, 3), credentials.jwt),
    (Entry(b"://"), credentials.url),
    (Entry(b"basic ", True), credentials.basic),
    (Entry(b"-u ", False, r"\s-u [^\s]{4}", 1, 8), credentials.user),
    (Entry(b"--user"), credentials.user),
)
# The marks of what people encode in base64 most: keys as a whole file, addresses with passwords.
ENCODED_PLACES: Final = tuple(entry for entry in PLACES if entry[0].literal in (b"-----BEGIN ", b"eyJ"))
ENCODED_MARK: Final = 4


class Rules(msgspec.Struct):
    """What looks at one entry's hits: for a whole secret, for an assigned one, for one in base64."""

    looks: list[Confirm] = []
    words: list[bytes] = []
    encoded: list[EncodedMark] = []


class Scanner:
    """Every rule behind one prefilter."""

    def __init__(self) -> None:
        rules: dict[Entry, Rules] = {}
        for entry, confirm in (*PLACES, *pii.SHAPES):
            rules.setdefault(entry, Rules()).looks.append(confirm)
        for token in tokens():
            rules.setdefault(_entry(token), Rules()).looks.append(token.confirm)
        for word in WORDS:
            rules.setdefault(word, Rules()).words.append(word.literal)
        for mark in _encoded_marks():
            rules.setdefault(Entry(mark.literal), Rules()).encoded.append(mark)
        self._rules = [(each.looks, each.words, each.encoded) for each in rules.values()]
        self._prefilter = Prefilter(list(rules))

    def scan(self, data: bytes) -> list[Candidate]:
        """Every secret, none inside another, in the order of the text."""
        hits = self._prefilter.hits(data)
        found: list[Candidate] = []
        if not hits:
            return found
        rules = self._rules
        assigned, decoded = Assignments(data).at, EncodedSecrets(data).at
        for number, at in hits:
            looks, words, marks = rules[number]
            for look in looks:
                if (candidate := look(data, at)) is not None:
                    found.append(candidate)
            for word in words:
                if (candidate := assigned(at, word)) is not None:
                    found.append(candidate)
            for mark in marks:
                if (candidate := decoded(at, mark)) is not None:
                    found.append(candidate)
        return drop_overlaps(found) if len(found) > 1 else found


def _entry(token: Token) -> Entry:
    return Entry(token.literal.encode(), False, *token.trigger)


def _encoded_marks() -> Iterable[EncodedMark]:
    """What is looked for in base64 too."""
    for entry, confirm in ENCODED_PLACES:
        yield from encoded_marks(entry.literal, confirm)
    for token in tokens():
        if token.tier == "precise" and not token.back and len(token.literal) >= ENCODED_MARK:
            yield from encoded_marks(token.literal.encode(), token.confirm)


@functools.cache
def default_scanner() -> Scanner:
    return Scanner()
