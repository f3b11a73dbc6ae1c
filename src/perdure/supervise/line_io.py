"""One frame per line, over pipes: reading bounded in memory whatever is sent, writing without waiting."""

from __future__ import annotations

import os
from collections import deque

_KEPT = 4096
_CHUNK = 1 << 20
_COPIED = 1 << 16


class Oversize:
    """A line over the bound, discarded but for its two ends."""

    __slots__ = ("head", "size", "tail")

    def __init__(self, size: int, head: bytes, tail: bytes) -> None:
        self.size = size
        self.head = head
        self.tail = tail

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if len(self.head) < _KEPT:
            self.head = (self.head + piece[:_KEPT])[:_KEPT]
        self.tail = (self.tail + piece[-_KEPT:])[-_KEPT:]


class LineReader:
    """Splits a stream at newlines. Blank lines are nothing; carriage returns before one are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._discarding: Oversize | None = None
        self.ready: deque[bytes | Oversize] = deque()

    def feed(self, data: bytes) -> None:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._add(data[start:end])
            self._end_line()
            start = end + 1
        if start < len(data):
            self._add(data[start:] if start else data)

    def _add(self, piece: bytes) -> None:
        if self._discarding is not None:
            self._discarding.add(piece)
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            whole = b"".join(self._parts)
            self._discarding = Oversize(len(whole), whole[:_KEPT], whole[-_KEPT:])
            self._parts, self._size = [], 0

    def _end_line(self) -> None:
        if self._discarding is not None:
            self.ready.append(self._discarding)
            self._discarding = None
            return
        line = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        line = line.rstrip(b"\r")
        if line.strip():
            self.ready.append(line)

    # --- what goes along when the host replaces itself ------------------------------------------------

    def dump(self) -> bytes:
        """What was read but not yet taken. A line being discarded cannot go along: its size is lost."""
        lines = [line for line in self.ready if isinstance(line, bytes)]
        return b"".join(line + b"\n" for line in lines) + b"".join(self._parts)

    @property
    def can_dump(self) -> bool:
        return self._discarding is None and all(isinstance(line, bytes) for line in self.ready)


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
