"""The worker's side of the pipe: bounded frames in, whole frames out, nothing else on either descriptor."""

from __future__ import annotations

import os
import threading
from typing import Final, Self

from perdure.platform.descriptors import set_blocking
from perdure.supervise.line_io import LineReader, Oversize

MAX_FRAME: Final = 64 * 1024 * 1024
READ_BYTES: Final = 1 << 16


def claim_stdio() -> tuple[int, int]:
    """Keep the protocol's pipe for the protocol: a stray print, or a child that inherits descriptor 1, goes to stderr."""
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
        self._lines = LineReader(limit)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes | Oversize:
        while not self._lines.ready:
            if not (chunk := os.read(self._source, READ_BYTES)):
                raise StopIteration
            self._lines.feed(chunk)
        return self._lines.ready.popleft()


class FrameWriter:
    """Writes whole frames from any thread. After the client has closed the pipe it writes nothing."""

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
