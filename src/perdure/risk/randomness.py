"""Was this made by a machine at random, or by a person? The difference between a secret and an example.

A placeholder repeats itself, counts up, says `example`, or is made of words. Words are told by their letter
pairs: most pairs of English and of identifiers are among a few common ones, most pairs of a random text are not.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from typing import Final

from perdure.risk.word_trie import word_pattern

# Values that vendors print in their own documentation. They look real and open nothing.
KNOWN_EXAMPLES: Final = frozenset(
    (
        b"AKIAIOSFODNN7EXAMPLE",
        b"AKIAI44QH8DHBEXAMPLE",
        b"ASIAIOSFODNN7EXAMPLE",
        b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        b"je7MtGbClwBF/2Zp9Utk/h3yCo8nvbEXAMPLEKEY",
        b"sk_test_4eC39HqLyjWDarjtT1zdp7dc",
        b"sk_test_BQokikJOvBiI2HlWgH4olfQ2",
        b"sk_test_tR3PYbcVNZZ796tH88S4VQ2u",
        b"rk_test_4eC39HqLyjWDarjtT1zdp7dc",
        b"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",
        b"key-3ax6xnjp29jd6fds4gc373sgvjxteol0",
        b"AIzaSyDaGmWKa4JsXZ-HjGw7ISLn_3namBGewQe",
        b"AIzaSyClzfrOzB818x55FASHvX4JuGQciR9lv7q",
        b"110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
        b"123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11",
        b"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
        b"ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        b"gho_16C7e42F292c6912E7710c838347Ae178B4a",
        b"ghu_16C7e42F292c6912E7710c838347Ae178B4a",
        b"ghr_1B4a2e77838347a7E420ce178F2E7c6912E169246c34E1ccbF66C46812d16D5B1A9Dc86A1498",
        b"xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy",
        b"xoxp-1234-5678-91011-abcdef",
        b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        b"C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==",
        b"ya29.a0AfH6SMBexample",
        b"shpat_c0ffee00c0ffee00c0ffee00c0ffee00",
    )
)
# The token that jwt.io opens with, and the claim by which all its relatives are known.
EXAMPLE_CLAIMS: Final = (b'"John Doe"', b'"1234567890"', b'"joe"', b'"Jane Doe"')
# Of a text in lower case.
PLACEHOLDER: Final = re.compile(
    word_pattern(
        b"example placeholder redacted changeme change_me changeit xxxxx your dummy sample fake notreal not_real "
        b"replace insert deadbeef foobar lorem 00000000 11111111 *** ... ${ {{".split()
    )
    + rb"|<[a-z_ -]+>"
)
COMMON_PAIRS: Final = (
    b"th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi "
    b"ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc "
    b"et ut ss so rs un lo wa ge ie wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv "
    b"ia am fi ci vi pl ig tu ev ld ry mp fe bl ab gh ty op wo sa ay ex ke fr oo av ag if ap gr od bo sp rd do "
    b"uc bu ei ov by rm ep tt oc fa ef cu rn sc gi da cr cl ck"
).split()
PAIR_SHARE: Final = 0.32
PAIR_NOISE: Final = 1.3
HEX: Final = re.compile(rb"(?:0x)?[0-9a-fA-F_.:$/-]+\Z")
# What a pair of characters says, in one number so that a sum counts all three at once.
LETTERS: Final = 1
COMMON: Final = 1 << 16
CLOSE: Final = 1 << 32
ALNUM: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"


def _pair_table() -> list[int]:
    table = [0] * 65_536
    for first in ALNUM:
        for second in ALNUM:
            letters = LETTERS if first > 57 and second > 57 else 0
            table[_pair(first, second)] = letters + (CLOSE if abs(first - second) <= 1 else 0)
    for first, second in COMMON_PAIRS:
        table[_pair(first, second)] += COMMON
    for same in set(range(256)) - set(ALNUM):
        table[_pair(same, same)] = CLOSE
    return table


def _pair(first: int, second: int) -> int:
    """Two characters as the number that a view of the bytes gives for them."""
    return int.from_bytes((first, second), sys.byteorder)


PAIRS: Final = _pair_table()


def made_up(body: bytes) -> bool:
    """A body that no generator of tokens would give."""
    count = len(body)
    if count < 8:
        return False
    lower = body.lower()
    is_hex = HEX.match(body) is not None
    if len(set(lower)) < (min(6, count // 3) if is_hex else min(8, count // 2)) or PLACEHOLDER.search(lower):
        return not body.isdigit() or len(set(body)) < min(4, count // 3)
    if body.isdigit():
        return False
    letters, common, close = _pairs(lower)
    if close * 2 >= count - 1 or (lower + lower).find(lower, 1) < count:
        return True
    return not is_hex and _worded(letters, common, PAIR_NOISE)


def wordy(lower: bytes, noise: float = PAIR_NOISE) -> bool:
    """In the pairs of letters that words are made of; the fewer pairs, the more of them must be."""
    letters, common, _ = _pairs(lower)
    return _worded(letters, common, noise)


def _pairs(lower: bytes) -> tuple[int, int, int]:
    """How many pairs are letters, are common in words, are equal or neighbours."""
    view = memoryview(lower)
    count = len(lower)
    worth = PAIRS.__getitem__
    total = sum(map(worth, view[: count & ~1].cast("H"))) + sum(
        map(worth, view[1 : (count - 1) | 1].cast("H"))
    )
    return total & 0xFFFF, total >> 16 & 0xFFFF, total >> 32


def _worded(letters: int, common: int, noise: float) -> bool:
    return letters >= 4 and common / letters >= PAIR_SHARE + noise / math.sqrt(letters)


def entropy(value: bytes) -> float:
    """Shannon's, in bits for each character."""
    total = len(value)
    return -sum(count / total * math.log2(count / total) for count in Counter(value).values())


# --- values of assignments ---------------------------------------------------------------------------

# Of a value in lower case: words that people put where no secret is.
STOP: Final = re.compile(
    word_pattern(
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


def random_value(value: bytes, *, least: int, is_made_up: bool | None = None) -> bool:
    """A value that a generator made, or a person who chose a good password. `is_made_up` where it is known."""
    count = len(value)
    if count < least or value in KNOWN_EXAMPLES or DATE_OR_VERSION.match(value):
        return False
    if count < SHORT and STOP.search(value.lower()):
        return False
    # Letters and digits alone refer to nothing and join no words.
    plain = value.isalnum()
    if not plain and (REFERENCE.match(value) or _joined_words(value)):
        return False
    if made_up(value) if is_made_up is None else is_made_up:
        return False
    bits = MANY_BITS if len(set(value)) >= MANY else entropy(value)
    if not value.isalpha() if plain else DIGIT.search(value):
        letters = not value.isdigit() if plain else LOWER.search(value) or UPPER.search(value)
        return bool(letters) and bits >= (SHORT_ENTROPY if count < 14 else ENTROPY)
    mixed = LOWER.search(value) and UPPER.search(value)
    if not mixed or count < NO_DIGITS or bits < NO_DIGITS_ENTROPY:
        return False
    return not wordy(value.lower(), NO_DIGITS_NOISE)


def _joined_words(value: bytes) -> bool:
    """A name such as `self.private_key_v2`: most of it is in parts that are letters only."""
    parts = JOINED.split(value)
    return len(parts) > 2 and sum(len(part) for part in parts if part.isalpha()) * 2 > len(value)


def usable_password(value: bytes) -> bool:
    """Weak, perhaps, but neither a placeholder nor a reference."""
    if len(value) < 6 or STOP.search(value.lower()) or REFERENCE.match(value):
        return False
    if made_up(value):
        return False
    return bool(DIGIT.search(value) or SYMBOL.search(value)) or _is_mixed_noise(value)


def _is_mixed_noise(value: bytes) -> bool:
    """Letters alone, in both cases, that make no words."""
    mixed = len(value) >= MIXED_LENGTH and LOWER.search(value) and UPPER.search(value)
    return bool(mixed) and not wordy(value.lower(), NO_DIGITS_NOISE)
