"""The worker's side of the pipe: bounded frames in, whole frames out, nothing else on either descriptor."""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final, Self

import msgspec

from perdure.platform.descriptors import set_blocking

MAX_FRAME: Final = 64 * 1024 * 1024
_SIP: Final = 1 << 16
_GULP: Final = 1 << 18
_EDGE: Final = 1024


class Oversize(msgspec.Struct, frozen=True):
    """A frame that was too long to keep: both its ends, where its id may stand."""

    head: bytes
    tail: bytes


def claim_stdio() -> tuple[int, int]:
    """Take the protocol's descriptors away from everything else in this process.

    A stray print, a library's banner or a child that inherits descriptor 1 then goes to stderr, and
    nothing but the reader can take bytes from the client.
    """
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    set_blocking(source, True)
    set_blocking(sink, True)
    return source, sink


class FrameReader:
    """Frames as they arrive, until the end of input. An unfinished last line is not a frame."""

    def __init__(self, source: int, limit: int = MAX_FRAME) -> None:
        self._source = source
        self._limit = limit
        self._ready: deque[bytes | Oversize] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of a frame that is being skipped
        self._asked = _SIP

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes | Oversize:
        while not self._ready:
            chunk = os.read(self._source, self._asked)
            if not chunk:
                raise StopIteration
            # A large buffer has its price, which only a frame that does not fit a small one is worth.
            self._asked = _GULP if len(chunk) == self._asked else _SIP
            self._take(chunk)
        return self._ready.popleft()

    def _take(self, chunk: bytes) -> None:
        *ended, rest = chunk.split(b"\n") if b"\n" in chunk else (chunk,)
        for piece in ended:
            frame = b"".join((*self._parts, piece)) if self._parts else piece
            self._parts, self._size = [], 0
            if self._head is not None or len(frame) > self._limit:
                head = frame[:_EDGE] if self._head is None else self._head
                self._ready.append(Oversize(head, frame[-_EDGE:]))
                self._head = None
            elif stripped := frame.strip():
                self._ready.append(stripped)
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._head is None and self._size > self._limit:
            self._head = b"".join(self._parts)[:_EDGE]
        if self._head is not None:
            # It is kept only as far as its end may need it.
            tail = b"".join(self._parts)[-_EDGE:]
            self._parts, self._size = [tail], len(tail)


class FrameWriter:
    """Writes whole frames from any thread. When the client is gone it goes quiet: no one is left to tell."""

    def __init__(self, sink: int) -> None:
        self._sink = sink
        self._lock = threading.Lock()
        self.is_closed = False

    def write(self, frame: bytes) -> None:
        with self._lock:
            rest = memoryview(frame + b"\n")
            while rest and not self.is_closed:
                try:
                    rest = rest[os.write(self._sink, rest) :]
                except (BrokenPipeError, ConnectionResetError):
                    self.is_closed = True
