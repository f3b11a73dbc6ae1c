"""Measures of a whole text: bytes, lines, the longest line, and signs that it is not text at all."""

from __future__ import annotations

from typing import AnyStr, Final

import msgspec

WALL: Final = b"a" * 200
BASE64: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"a" * 64,
)
CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\f\x1b") | {127})
BLOCK: Final = 131_072
SAMPLE: Final = 2_048
CONTROL_SHARE: Final = 0.01


class Shape(msgspec.Struct, frozen=True, gc=False):
    bytes: int
    line_count: int
    max_line_len: int


def measure(text: str, data: bytes) -> Shape:
    """Lines are counted in characters; of a text in ASCII the bytes say the same, faster."""
    count, longest = _lines(data, b"\n") if len(data) == len(text) else _lines(text, "\n")
    return Shape(len(data), count, longest)


def _lines(text: AnyStr, newline: AnyStr) -> tuple[int, int]:
    """Counted by blocks of whole lines, so that a large text needs no list of all of them."""
    count, longest, at = 0, 0, 0
    while at < len(text):
        end = text.find(newline, at + BLOCK)
        lines = (text[at:end] if end >= 0 else text[at:] if at else text).split(newline)
        count += len(lines)
        longest = max(longest, max(map(len, lines)))
        if end < 0:
            return count - text.endswith(newline), longest
        at = end + 1
    return count, longest


def base64_wall(data: bytes) -> int:
    """Where a run of 200 characters of base64 begins, or -1."""
    return data.translate(BASE64).find(WALL)


def binary(data: bytes) -> bool:
    """A zero byte, or more control characters than any text has, in what stands first."""
    if b"\0" in data:
        return True
    sample = data[:SAMPLE]
    return len(sample) - len(sample.translate(None, CONTROLS)) > len(sample) * CONTROL_SHARE
