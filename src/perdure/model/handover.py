"""How the host hands a large string to its own worker: in memory that both have open, instead of in the pipe.

    host     writes the string's text into a free slot as it arrives, sends news of that now and then; when it is all
             there marks the slot as taken and sends a note with the rest of the frame
    worker   works on the text where it is, marks the slot as free when it needs it no more

The memory is a file without a name that belongs to one worker process and goes with it. Its first page says who may go
on: the worker writes `MARK` there once it reads notes, and each slot has a byte that is zero while the slot is free.
What is handed over is a copy: the host keeps the frame until its call is answered, as it keeps every other.

News is for a worker that can do something with the beginning of a text. It promises nothing: whether a note will come
is not known yet, and the next news of that slot may be of another text, under another serial number. The first news of a
text has with it what the call says before the text, as far as that can be told.

News and notes are lines that no frame can be: their first byte is not that of an object.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

VARIABLE: Final = "PERDURE_ARENA"
MARK: Final = b"perdure3"
SLOTS: Final = 4
SLOT_BYTES: Final = 8 << 20
FLAGS: Final = 64
"""Where the slots' bytes are."""
FIRST: Final = 4096
SIZE: Final = FIRST + SLOTS * SLOT_BYTES
LARGE: Final = 1 << 18
"""From how many bytes on a string is worth it."""

STEP: Final = 1 << 20
"""After how many bytes there is news."""

_LINE: Final = re.compile(rb"([@+])([0-9]{1,2}) ([0-9]{1,19}) ([0-9]{1,9}) ([A-Za-z_][A-Za-z0-9_.-]*) ?")


class News(NamedTuple):
    """So many bytes of a text for this tool are in the slot. `before` are arguments that stand before it, as JSON."""

    slot: int
    serial: int
    size: int
    tool: str
    before: bytes = b""


class Note(NamedTuple):
    """Argument `name` of the call in `frame`, where an empty string stands for it, is the text in this slot."""

    slot: int
    serial: int
    size: int
    name: str
    frame: bytes


def begin(slot: int) -> int:
    return FIRST + slot * SLOT_BYTES


def encode(said: Note | News) -> bytes:
    if isinstance(said, News):
        return b"+%d %d %d %b %b" % (*said[:3], said.tool.encode(), said.before)
    return b"@%d %d %d %b %b" % (*said[:3], said.name.encode(), said.frame)


def decode(line: bytes) -> Note | News | None:
    found = _LINE.match(line)
    if found is None or int(found[2]) >= SLOTS or int(found[4]) > SLOT_BYTES:
        return None
    slot, serial, size = (int(found[number]) for number in (2, 3, 4))
    if found[1] == b"+":
        return News(slot, serial, size, found[5].decode(), line[found.end() :])
    return Note(slot, serial, size, found[5].decode(), line[found.end() :])
