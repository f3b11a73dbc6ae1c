"""Measures of a whole text: bytes, lines, lines that are too long, binary content, long runs of base64."""

from __future__ import annotations

import functools
from typing import AnyStr, Final

import msgspec

from perdure.risk.engine import FirstMatches
from perdure.risk.settings import Limits

CONTROL: Final = b"\x01"
CONTROLS: Final = bytes(
    1 if byte == 127 or (byte < 32 and byte not in b"\t\n\r\f\x1b") else 32 for byte in range(256)
)
BLOCK: Final = 131_072
SAMPLE: Final = 2_048
# A line of so many bytes is neither too long nor a blob of base64.
SHORT_LINE: Final = 199
BLOB: Final = SHORT_LINE + 1
# Below this size, translating the bytes is faster than a call of the engine.
SMALL: Final = 8_192
BASE64: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", b"a" * 64
)
CONTROL_SHARE: Final = 0.01


class Shape(msgspec.Struct, frozen=True, gc=False):
    """`too_long` is the longest line's length if that is above the limit, else 0."""

    bytes: int
    line_count: int
    too_long: int


def measure(text: str, data: bytes, limits: Limits, *, has_short_lines: bool = False) -> Shape:
    """Lines are measured in characters; of a text in ASCII the bytes say the same, faster. Whether it is known to have
    only short lines is the caller's to say."""
    size, limit = len(data), limits.line_length
    count = data.count(b"\n") + (size > 0 and not data.endswith(b"\n"))
    too_long = 0
    # No line has more characters than bytes.
    if size > limit and not (has_short_lines and limit >= SHORT_LINE):
        is_ascii = size == len(text)
        too_long = _beyond(data, b"\n", limit) if is_ascii else _beyond(text, "\n", limit)
    return Shape(size, count, too_long)


def _beyond(text: AnyStr, newline: AnyStr, limit: int) -> int:
    """Where no line is longer than the longest so far, all that end within that length are passed in one step."""
    longest, at, end = limit, 0, len(text)
    while end - at > longest:
        last = text.rfind(newline, at, at + longest + 1)
        if last < 0:
            last = text.find(newline, at + longest + 1)
            last = end if last < 0 else last
            longest = last - at
        at = last + 1
    return longest if longest > limit else 0


def longest_line(text: str) -> int:
    """By blocks of whole lines, so that a large text needs no list of all of them."""
    longest, at = 0, 0
    while at < len(text):
        end = text.find("\n", at + BLOCK)
        end = len(text) if end < 0 else end
        longest = max(longest, max(map(len, text[at:end].split("\n"))))
        at = end + 1
    return longest


def is_binary(data: bytes) -> bool:
    """A zero byte, or more control characters than any text has, in what stands first."""
    if b"\0" in data:
        return True
    sample = data[:SAMPLE]
    return sample.translate(CONTROLS).count(CONTROL) > len(sample) * CONTROL_SHARE


def has_only_short_lines(data: bytes) -> bool:
    """Whether no line is longer than `SHORT_LINE`, which takes next to no time to find out."""
    return not _long_line().ends(data)


def first_base64_blob(data: bytes) -> int:
    """Where the first run of `BLOB` characters of base64 begins, or -1."""
    if len(data) < SMALL:
        return data.translate(BASE64).find(b"a" * BLOB)
    ends = _base64_blob().ends(data)
    return ends[0] - BLOB if ends else -1


@functools.cache
def _long_line() -> FirstMatches:
    return FirstMatches([rb"[^\n]{%d}" % BLOB])


@functools.cache
def _base64_blob() -> FirstMatches:
    return FirstMatches([b"[A-Za-z0-9+/]{%d}" % BLOB])
