"""Secrets inside base64. The mark of a token looks different in base64 at each of three alignments, but always
the same at one, so the engine can look for all three; only what follows such a place is decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

import msgspec

from perdure.risk.candidates import Candidate, Confirm

LEAST: Final = 4
PIECE: Final = 16_384
# No secret that is looked for takes more base64 than this; of a key in armour the first lines are enough.
REACH: Final = 4_096
RUN_BEFORE: Final = 4_096
RUN_AFTER: Final = 8_192
ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
RUN: Final = re.compile(rb"[A-Za-z0-9+/_-]+")
GROUP: Final = 4
PADDING: Final = (b"", b"AAA", b"AA", b"A")
URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


class EncodedMark(NamedTuple):
    """How a mark looks at one alignment: its whole characters, how many of the group stand before them, and what
    confirms the secret that the mark begins.
    """

    literal: bytes
    alignment: int
    skipped: int
    inner: Confirm


def encoded_marks(mark: bytes, inner: Confirm) -> list[EncodedMark]:
    """The mark's three looks, without those too short to mean anything."""
    found = []
    for alignment in range(3):
        encoded = base64.b64encode(b"\0" * alignment + mark)
        first = -(-alignment * 8 // 6)
        whole = (alignment + len(mark)) * 8 // 6
        if whole - first >= LEAST:
            found.append(EncodedMark(encoded[first:whole], alignment, first, inner))
    return found


class _Piece(NamedTuple):
    """Decoded base64 from `start` on; a mark before `usable` has all it needs in it."""

    start: int
    usable: int
    plain: bytes


NO_PIECE: Final = _Piece(0, 0, b"")


class EncodedSecrets:
    """One text's base64, decoded once at each alignment however many marks are in it."""

    __slots__ = ("_data", "_pieces")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pieces = [NO_PIECE] * GROUP

    def at(self, at: int, encoded: EncodedMark) -> Candidate | None:
        """The secret whose encoded mark is at this offset; its place is the whole run."""
        _, alignment, skipped, inner = encoded
        group = at - skipped
        start, usable, plain = self._pieces[group % GROUP]
        if not start <= group < usable:
            if group < 0:
                return None
            start, usable, plain = self._pieces[group % GROUP] = self._decoded(group)
        found = inner(plain, (group - start) // GROUP * 3 + alignment)
        if found is None:
            return None
        start, end = _run(self._data, at)
        return msgspec.structs.replace(found, start=start, end=end, shown=0, rank=found.rank - 1)

    def _decoded(self, group: int) -> _Piece:
        """From one group before, where there is one, so that a rule sees what stands before the mark."""
        data = self._data
        start = group - GROUP
        if start < 0 or data[start:group].rstrip(ALPHABET):
            start = group
        run = RUN.match(data, start, start + PIECE)
        if run is None:
            return NO_PIECE
        text = run[0].translate(URL_SAFE)
        try:
            plain = binascii.a2b_base64(text + PADDING[len(text) % GROUP])
        except binascii.Error:
            return NO_PIECE
        end = run.end()
        return _Piece(start, end - REACH if end == start + PIECE else end, plain)


def _run(data: bytes, at: int) -> tuple[int, int]:
    before = data[max(0, at - RUN_BEFORE) : at]
    start = at - (len(before) - len(before.rstrip(ALPHABET)))
    run = RUN.match(data, at, at + RUN_AFTER)
    end = run.end() if run else at
    while data[end : end + 1] == b"=":
        end += 1
    return start, end
