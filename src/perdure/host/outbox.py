"""What waits to be written to a pipe that does not take it yet."""

from __future__ import annotations

import os
from collections import deque

_CHUNK = 1 << 20
_COPIED = 1 << 16


class Outbox:
    """Writes at once where the pipe has room; keeps the rest, in order, until it has."""

    def __init__(self, fd: int, waiting: bytes = b"") -> None:
        self.fd = fd
        self.size = len(waiting)
        self._waiting: deque[memoryview] = deque([memoryview(waiting)] if waiting else ())

    def put_line(self, frame: bytes) -> None:
        """A frame and the end of its line. A large one is not copied for that."""
        if len(frame) <= _COPIED:
            self.put(frame + b"\n")
        else:
            self.put(frame)
            self.put(b"\n")

    def put(self, data: bytes) -> None:
        """Raises OSError where the pipe is broken."""
        view = memoryview(data)
        if not self._waiting:
            view = self._write(view)
        if len(view):
            self._waiting.append(view)
            self.size += len(view)

    def flush(self) -> None:
        while self._waiting:
            view = self._waiting[0]
            rest = self._write(view)
            self.size -= len(view) - len(rest)
            if len(rest):
                self._waiting[0] = rest
                return
            self._waiting.popleft()

    def _write(self, view: memoryview) -> memoryview:
        while len(view):
            try:
                written = os.write(self.fd, view[:_CHUNK])
            except BlockingIOError:
                break
            view = view[written:]
        return view

    def dump(self) -> bytes:
        return b"".join(self._waiting)
