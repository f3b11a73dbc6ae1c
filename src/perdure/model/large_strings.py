"""The one large string of a frame: where it stands, and its text piece by piece.

What is between its quotes is most of the frame. Cut out of it, the rest is small and read in the ordinary way: if that
is JSON with another string in this place, and what was cut out is a JSON string, then the frame is JSON and says
both. So a place may be guessed: a wrong one fails in one of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

EDGE: Final = 4096
"""How far from either end of the frame the string may begin and end."""
NEAREST: Final = 64
NEAR: Final = 1024
PIECE: Final = 1 << 18
EMPTY: Final = b'""'

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_REST: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# Behind as many bytes no escape goes on, not even that of two surrogates; before ASCII no character does.
_SEAM: Final = re.compile(rb"[^\\]{12}(?=[\x00-\x7f])", re.DOTALL)
_text = msgspec.json.Decoder(str)


def begun(head: bytes) -> int | None:
    """Where, near the start of a frame, a string begins that does not end there."""
    at, head = 0, head[:EDGE]
    while (start := head.find(b'"', at)) >= 0:
        if (short := _STRING.match(head, start)) is None:
            return start
        at = short.end()
    return None


def placed(frame: bytes) -> tuple[int, int] | None:
    """From where to where, quotes included, a string may reach that begins near the start and ends near the end."""
    start, tail = begun(frame), len(frame) - EDGE
    if start is None or tail <= start:
        return None
    before = frame[max(start, tail - EDGE) : tail]
    tail += (len(before) - len(before.rstrip(b"\\"))) % 2  # the first byte may be an escaped one
    end = _REST.match(frame, tail)
    return (start, end.end()) if end is not None else None


def seam(data: bytes, start: int, end: int) -> int:
    """The last place near the end of a string's part where nothing is cut in two; its start where there is none."""
    for near in (NEAREST, NEAR):
        found = start
        for match in _SEAM.finditer(data, max(start, end - near), end):
            found = match.end()
        if found > start:
            break
    return found


def text(*part: bytes | memoryview) -> bytes:
    """What a part of a JSON string says, in UTF-8. Raises ValueError where it is no such part."""
    try:
        return _text.decode(b"".join((b'"', *part, b'"'))).encode()
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def pieces(frame: bytes, at: int, stop: int) -> Iterator[bytes]:
    """The text of a JSON string between two places within its quotes."""
    whole = memoryview(frame)
    while at < stop:
        cut = seam(frame, at, at + PIECE) if at + PIECE < stop else stop
        cut = cut if cut > at else stop
        yield text(whole[at:cut])
        at = cut
