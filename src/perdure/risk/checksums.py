"""Tokens that prove themselves. A right checksum outweighs every doubt; a wrong one proves nothing, since
vendors change their formats."""

from __future__ import annotations

import re
import zlib
from typing import Final

BASE62: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CHECKED: Final = re.compile(rb"(?:gh[pousr]|npm)_([A-Za-z0-9]{30})([A-Za-z0-9]{6})\Z")


def proves(token: bytes) -> bool:
    """GitHub and npm end a token with the CRC-32 of its body, in base 62."""
    found = CHECKED.match(token)
    return found is not None and base62(zlib.crc32(found[1])) == found[2]


def base62(number: int, width: int = 6) -> bytes:
    digits = bytearray()
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(BASE62[digit])
    return bytes(reversed(digits))


def luhn(digits: str) -> bool:
    """The check digit of payment cards."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def iban(text: str) -> bool:
    """The check digits of an account number: the rest of the whole, as a number, is 1 modulo 97."""
    moved = text[4:] + text[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1
