"""Measures of a whole text: bytes, lines, lines that are too long, and signs that it is not text at all."""

from __future__ import annotations

from typing import AnyStr, Final

import msgspec

from perdure.risk.runs import SHORT
from perdure.risk.settings import Limits

CONTROL: Final = b"\x01"
CONTROLS: Final = bytes(
    1 if byte == 127 or (byte < 32 and byte not in b"\t\n\r\f\x1b") else 32 for byte in range(256)
)
BLOCK: Final = 131_072
SAMPLE: Final = 2_048
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
    if size > limit and not (has_short_lines and limit >= SHORT):
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


def binary(data: bytes) -> bool:
    """A zero byte, or more control characters than any text has, in what stands first."""
    if b"\0" in data:
        return True
    sample = data[:SAMPLE]
    return sample.translate(CONTROLS).count(CONTROL) > len(sample) * CONTROL_SHARE
