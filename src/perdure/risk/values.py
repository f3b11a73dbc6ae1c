"""Is the value of an assignment a secret? Neither an example, nor a word, nor a reference to something else."""

from __future__ import annotations

import re
from typing import Final

from perdure.risk import examples, randomness, trie

# Of a value in lower case: words that people put where no secret is.
STOP: Final = re.compile(
    trie.pattern(
        b"pass secret test admin user token key 1234 abc qwerty hello world demo default null none true false string "
        b"value variable mock stub temp here todo foo bar baz enter config environ invalid expired random".split()
    )
)
REFERENCE: Final = re.compile(
    rb"\$[A-Za-z_{(]|\{|<|%[({]|%[A-Z_]+%|#\{|@[a-z]+[/(]|![A-Z][a-z]+\Z|[A-Za-z]+://|arn:|[.~]{0,2}/[a-z]+/"
    rb"|env:|vault:|ssm:|ENC\["
)
DATE_OR_VERSION: Final = re.compile(rb"[0-9.:TZv+_/-]+\Z")
DIGIT: Final = re.compile(rb"[0-9]")
LOWER: Final = re.compile(rb"[a-z]")
UPPER: Final = re.compile(rb"[A-Z]")
SYMBOL: Final = re.compile(rb"[^A-Za-z0-9]")
SHORT: Final = 24
# So many different characters need no further look.
MANY: Final = 11
MANY_BITS: Final = 3.45
ENTROPY: Final = 3.0
SHORT_ENTROPY: Final = 2.7
NO_DIGITS: Final = 16
NO_DIGITS_ENTROPY: Final = 3.4
NO_DIGITS_NOISE: Final = 0.6
MIXED_LENGTH: Final = 12
JOINED: Final = re.compile(rb"[._:/-]")


def random_value(value: bytes, *, least: int, made_up: bool | None = None) -> bool:
    """A value that a generator made, or a person who chose a good password. `made_up` where it is known."""
    count = len(value)
    if count < least or value in examples.KNOWN or DATE_OR_VERSION.match(value):
        return False
    if count < SHORT and STOP.search(value.lower()):
        return False
    # Letters and digits alone refer to nothing and join no words.
    plain = value.isalnum()
    if not plain and (REFERENCE.match(value) or _joined_words(value)):
        return False
    if randomness.made_up(value) if made_up is None else made_up:
        return False
    bits = MANY_BITS if len(set(value)) >= MANY else randomness.entropy(value)
    if not value.isalpha() if plain else DIGIT.search(value):
        letters = not value.isdigit() if plain else LOWER.search(value) or UPPER.search(value)
        return bool(letters) and bits >= (SHORT_ENTROPY if count < 14 else ENTROPY)
    mixed = LOWER.search(value) and UPPER.search(value)
    if not mixed or count < NO_DIGITS or bits < NO_DIGITS_ENTROPY:
        return False
    return not randomness.wordy(value.lower(), NO_DIGITS_NOISE)


def _joined_words(value: bytes) -> bool:
    """A name such as `self.private_key_v2`: most of it is in parts that are letters only."""
    parts = JOINED.split(value)
    return len(parts) > 2 and sum(len(part) for part in parts if part.isalpha()) * 2 > len(value)


def usable_password(value: bytes) -> bool:
    """Weak, perhaps, but neither a placeholder nor a reference."""
    if len(value) < 6 or STOP.search(value.lower()) or REFERENCE.match(value):
        return False
    if randomness.made_up(value):
        return False
    return bool(DIGIT.search(value) or SYMBOL.search(value)) or _is_mixed_noise(value)


def _is_mixed_noise(value: bytes) -> bool:
    """Letters alone, in both cases, that make no words."""
    mixed = len(value) >= MIXED_LENGTH and LOWER.search(value) and UPPER.search(value)
    return bool(mixed) and not randomness.wordy(value.lower(), NO_DIGITS_NOISE)
