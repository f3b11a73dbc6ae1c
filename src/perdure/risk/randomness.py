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

from perdure.risk import trie

# Of a text in lower case.
PLACEHOLDER: Final = re.compile(
    trie.pattern(
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
