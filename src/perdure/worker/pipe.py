"""The worker's side of the pipe: bounded frames in, whole frames out, nothing else on either descriptor."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Final

import msgspec

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
    os.set_blocking(source, True)
    os.set_blocking(sink, True)
    return source, sink


def read_frames(source: int, limit: int = MAX_FRAME) -> Iterator[bytes | Oversize]:
    """Frames as they arrive, until the end of input. An unfinished last line is not a frame."""
    parts: list[bytes] = []
    size = 0
    head: bytes | None = None  # of a frame that is being skipped
    asked = _SIP
    while chunk := os.read(source, asked):
        # A large buffer has its price, which only a frame that does not fit a small one is worth.
        asked = _GULP if len(chunk) == asked else _SIP
        *ended, rest = chunk.split(b"\n") if b"\n" in chunk else (chunk,)
        for piece in ended:
            frame = b"".join((*parts, piece)) if parts else piece
            parts, size = [], 0
            if head is not None or len(frame) > limit:
                yield Oversize(frame[:_EDGE] if head is None else head, frame[-_EDGE:])
                head = None
            elif stripped := frame.strip():
                yield stripped
        if rest:
            parts.append(rest)
            size += len(rest)
        if head is None and size > limit:
            head = b"".join(parts)[:_EDGE]
        if head is not None:
            # It is kept only as far as its end may need it.
            tail = b"".join(parts)[-_EDGE:]
            parts, size = [tail], len(tail)


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
