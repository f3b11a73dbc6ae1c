"""What stands directly before and after a match. A short mark comes up in base64 by chance, once in some megabytes;
then what is found goes on, on one side at least, in the same random characters.
"""

from __future__ import annotations

import re
from typing import Final

BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
RUN: Final = re.compile(rb"[A-Za-z0-9+/_-]*")
NEAR: Final = 24
LEAST: Final = 12
DIGIT: Final = re.compile(rb"[0-9]")
LOWER: Final = re.compile(rb"[a-z]")
UPPER: Final = re.compile(rb"[A-Z]")
# How a checksum in base64 is announced.
CHECKSUMS: Final = (b"sha1-", b"sha256-", b"sha384-", b"sha512-")


def goes_on(data: bytes, start: int, end: int) -> bool:
    """Whether what is between is only a part of something longer."""
    before = data[max(0, start - NEAR) : start]
    if before.endswith(CHECKSUMS) or _random(before[len(before.rstrip(BASE64)) :]):
        return True
    after = RUN.match(data, end, end + NEAR)
    return after is not None and _random(after[0])


def _random(part: bytes) -> bool:
    return len(part) >= LEAST and all(kind.search(part) for kind in (DIGIT, LOWER, UPPER))
