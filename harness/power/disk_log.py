"""What was written to a disk, what was flushed, and what was said meanwhile, in one order.

The log is a memory file: the process that serves the disk appends to it, and the one that started it reads.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec


class Write(msgspec.Struct, frozen=True):
    """Bytes sent to the disk; it may keep them in its cache, or not."""

    offset: int
    data: bytes


class Flush(msgspec.Struct, frozen=True):
    """Everything before it is on the medium."""


class Mark(msgspec.Struct, frozen=True):
    """What the workload said."""

    text: str


Record = Write | Flush | Mark

_HEAD: Final = struct.Struct("=BQI")
_WRITE, _FLUSH, _MARK = 1, 2, 3


class DiskLog:
    def __init__(self, before: Sequence[Mark] = ()) -> None:
        self._fd = os.memfd_create("log")
        for mark in before:
            self.append(mark)

    def close(self) -> None:
        os.close(self._fd)

    def append(self, record: Record) -> None:
        match record:
            case Write(offset, data):
                head, body = _HEAD.pack(_WRITE, offset, len(data)), data
            case Flush():
                head, body = _HEAD.pack(_FLUSH, 0, 0), b""
            case Mark(text):
                body = text.encode()
                head = _HEAD.pack(_MARK, 0, len(body))
        os.write(self._fd, head + body)

    def records(self) -> list[Record]:
        """All of it, as far as it has come."""
        return list(self._parsed(os.pread(self._fd, os.fstat(self._fd).st_size, 0)))

    def _parsed(self, data: bytes) -> Iterator[Record]:
        at = 0
        while at < len(data):
            kind, offset, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            body = data[at : at + size]
            at += size
            yield Write(offset, body) if kind == _WRITE else Mark(body.decode()) if kind == _MARK else Flush()
