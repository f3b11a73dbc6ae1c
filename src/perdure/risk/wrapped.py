"""Secrets inside base64. The mark of a token looks different in base64 at each of three alignments, but always
the same at one, so the gate can look for all three; only what follows such a place is decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from perdure.risk.tokens import Candidate

LEAST: Final = 4
# Of a key in armour the header and the first lines are enough.
WINDOW: Final = 640
RUN_BEFORE: Final = 4_096
RUN_AFTER: Final = 8_192
ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
RUN: Final = re.compile(rb"[A-Za-z0-9+/_-]+")
GROUP: Final = 4
PADDING: Final = (b"", b"AAA", b"AA", b"A")
URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


class Wrapping(NamedTuple):
    """How a mark looks at one alignment: its whole characters, and how many of the group stand before them."""

    literal: bytes
    alignment: int
    skipped: int


def wrappings(mark: bytes) -> list[Wrapping]:
    """The mark's three looks, without those too short to mean anything."""
    found = []
    for alignment in range(3):
        encoded = base64.b64encode(b"\0" * alignment + mark)
        first = -(-alignment * 8 // 6)
        whole = (alignment + len(mark)) * 8 // 6
        if whole - first >= LEAST:
            found.append(Wrapping(encoded[first:whole], alignment, first))
    return found


def confirm(
    wrapping: Wrapping,
    inner: Callable[[bytes, int], Candidate | None],
    window: int,
    data: bytes,
    at: int,
) -> Candidate | None:
    """The secret whose wrapped mark is at this offset, in at most so much base64; its place is the whole run."""
    group = at - wrapping.skipped
    if group < 0:
        return None
    found = inner(_plain(data, group, at + window), wrapping.alignment)
    if found is not None and group >= GROUP and not data[group - GROUP : at].rstrip(ALPHABET):
        # One group more, so that the rule sees what stands before the mark.
        found = inner(_plain(data, group - GROUP, at + window), 3 + wrapping.alignment)
    if found is None:
        return None
    start, end = _run(data, at)
    return found._replace(start=start, end=end, shown=0, rank=found.rank - 1)


def _plain(data: bytes, start: int, end: int) -> bytes:
    run = RUN.match(data, start, end)
    if run is None:
        return b""
    text = run[0].translate(URL_SAFE)
    try:
        return binascii.a2b_base64(text + PADDING[len(text) % GROUP])
    except binascii.Error:
        return b""


def _run(data: bytes, at: int) -> tuple[int, int]:
    before = data[max(0, at - RUN_BEFORE) : at]
    start = at - (len(before) - len(before.rstrip(ALPHABET)))
    run = RUN.match(data, at, at + RUN_AFTER)
    end = run.end() if run else at
    while data[end : end + 1] == b"=":
        end += 1
    return start, end
