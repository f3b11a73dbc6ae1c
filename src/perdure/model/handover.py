"""How the host hands a large string to its own worker: in memory that both have open, instead of in the pipe.

    host     writes the string's text into a free slot, marks the slot as taken, sends a note with the rest of the frame
    worker   reads the text, marks the slot as free

The memory is a file without a name that belongs to one worker process and goes with it. Its first page says who may go
on: the worker writes `MARK` there once it reads notes, and each slot has a byte that is zero while the slot is free.
What is handed over is a copy: the host keeps the frame until its call is answered, as it keeps every other.

A note is a line that no frame can be: its first byte is not that of an object.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

VARIABLE: Final = "PERDURE_ARENA"
MARK: Final = b"perdure1"
SLOTS: Final = 2
SLOT_BYTES: Final = 8 << 20
FLAGS: Final = 64
"""Where the slots' bytes are."""
FIRST: Final = 4096
SIZE: Final = FIRST + SLOTS * SLOT_BYTES
LARGE: Final = 1 << 18
"""From how many bytes on a string is worth it."""

_NOTE: Final = re.compile(rb"@([0-9]{1,2}) ([0-9]{1,9}) ([A-Za-z_][A-Za-z0-9_]*) ")


class Note(NamedTuple):
    """Argument `name` of the call in `frame`, where an empty string stands for it, is the text in this slot."""

    slot: int
    size: int
    name: str
    frame: bytes


def begin(slot: int) -> int:
    return FIRST + slot * SLOT_BYTES


def encode(note: Note) -> bytes:
    return b"@%d %d %b %b" % (note.slot, note.size, note.name.encode(), note.frame)


def decode(line: bytes) -> Note | None:
    found = _NOTE.match(line)
    if found is None or int(found[1]) >= SLOTS or int(found[2]) > SLOT_BYTES:
        return None
    return Note(int(found[1]), int(found[2]), found[3].decode(), line[found.end() :])
