"""The host's side of the memory in which large strings go to the worker (`model/handover.py`).

A client's large call is read once: its string goes into a slot piece by piece, while it still arrives, which is also how
it is checked. If the kernel then sends the call to that worker, a note is sent; if it does anything else with it, the
slot is as free as before and nothing else has changed.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from perdure.host.lines import LineReader
from perdure.model import frames, handover, large_calls, large_strings
from perdure.model.handover import News, Note

if TYPE_CHECKING:
    from mmap import mmap

_TOOL: Final = re.compile(rb'"params" ?: ?\{"name" ?: ?"([A-Za-z0-9_.-]+)"')
_BEFORE: Final = re.compile(rb', ?"arguments" ?: ?(\{.*), ?"[A-Za-z0-9_]+" ?: ?', re.DOTALL)


class Arena:
    """A file in memory, shared with one worker."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.tell: Callable[[bytes], None] = lambda line: None
        """A line to the worker, if it takes one now. Raises OSError where it is gone."""
        self._is_read = False
        self._memory: mmap | None = None

    @classmethod
    def make(cls) -> Arena | None:
        """None where the system has no such files, or has none left: all works without it."""
        try:
            fd = os.memfd_create("perdure-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except (AttributeError, OSError):
            return None
        try:
            os.ftruncate(fd, handover.SIZE)
            _keep_size(fd)
        except (AttributeError, OSError):
            os.close(fd)
            return None
        return cls(fd)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def is_read(self) -> bool:
        """Whether the worker said that it understands notes."""
        if not self._is_read:
            self._is_read = os.pread(self.fd, len(handover.MARK), 0) == handover.MARK
        return self._is_read

    def free_slot(self) -> int | None:
        slot = os.pread(self.fd, handover.SLOTS, handover.FLAGS).find(b"\0")
        return slot if slot >= 0 else None

    def mark(self, slot: int, *, is_taken: bool) -> None:
        os.pwrite(self.fd, b"\1" if is_taken else b"\0", handover.FLAGS + slot)

    def write(self, data: bytes, at: int) -> None:
        """Raises OSError where it is closed, or cannot be mapped."""
        if self._memory is None:
            self._memory = self._mapped()
        self._memory[at : at + len(data)] = data

    def _mapped(self) -> mmap:
        from mmap import mmap  # most hosts never see a large call

        if self.fd < 0:  # which to `mmap` means memory of nobody else's
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return mmap(self.fd, handover.SIZE)


def _keep_size(fd: int) -> None:
    """For good: who has mapped a file that gets smaller is ended by the next look at it."""
    import fcntl

    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


@contextmanager
def shared(arena: Arena | None) -> Iterator[dict[str, str]]:
    """While a process is started that shall have it: the descriptor is for nobody else. What its environment says."""
    if arena is None:
        yield {}
        return
    os.set_inheritable(arena.fd, True)
    try:
        yield {handover.VARIABLE: str(arena.fd)}
    finally:
        os.set_inheritable(arena.fd, False)


class Filling:
    """A large string on its way into a slot. It begins at place `start` of its frame, and is there up to place `at`.

    It may be filled while the frame still arrives: `more` takes the bytes as they come, `finish` what is left. Both
    raise ValueError where the string is none or too large, and OSError where the worker is gone.
    """

    def __init__(self, arena: Arena, slot: int, start: int, tool: str, before: bytes) -> None:
        self.arena = arena
        self.slot = slot
        self.start = start
        self.serial = time.monotonic_ns()  # not that of a host before this one either
        self._tool = tool
        self._before = before
        self._told = 0
        self.at = start + 1
        self.size = 0
        self._left = b""

    def more(self, data: bytes) -> None:
        cut = large_strings.seam(data, 0, len(data))
        if not cut:
            self._left += data
            if len(self._left) > handover.LARGE:
                raise ValueError("nowhere to be cut")
            return
        self._put(large_strings.text(self._left, memoryview(data)[:cut]))
        self.at += len(self._left) + cut
        self._left = data[cut:]

    def finish(self, frame: bytes, end: int) -> None:
        if self.at >= end:
            raise ValueError("ended before")
        for piece in large_strings.pieces(frame, self.at, end - 1):
            self._put(piece)
        if self._told:
            self._tell()  # ahead of the note, which has to be decided about first

    def _put(self, text: bytes) -> None:
        if self.size + len(text) > handover.SLOT_BYTES:
            raise ValueError("too large")
        self.arena.write(text, handover.begin(self.slot) + self.size)
        self.size += len(text)
        if self.size - self._told >= handover.STEP:
            self._tell()

    def _tell(self) -> None:
        self._told, before, self._before = self.size, self._before, b""
        self.arena.tell(handover.encode(News(self.slot, self.serial, self.size, self._tool, before)))


class Handed:
    """A client's call whose large string is in a slot, for as long as the kernel decides about it."""

    def __init__(self, filling: Filling, frame: bytes, call: large_calls.Split) -> None:
        self.message = frames.decode_split(frame, call.parts)
        self._filling = filling
        self._name = call.name
        self._arguments = call.parts.params["arguments"]
        self._string = slice(call.inside, call.inside + call.end - call.start)
        self._is_sent = False

    def note(self, arena: Arena | None, pieces: frames.Pieces) -> bytes | None:
        """What is sent instead of a frame with the same arguments; None where it has to be sent itself."""
        filled = self._filling
        if self._is_sent or arena is not filled.arena:
            return None
        same = (number for number, piece in enumerate(pieces) if _of(piece) == self._arguments)
        number = next(same, None)
        if number is None:
            return None
        before, string, after = pieces[:number], self._string, pieces[number + 1 :]
        cut = (pieces[number][: string.start], large_strings.EMPTY, pieces[number][string.stop :])
        rest = b"".join((*before, *cut, *after))
        filled.arena.mark(filled.slot, is_taken=True)
        self._is_sent = True
        return handover.encode(Note(filled.slot, filled.serial, filled.size, self._name, rest))


def _of(piece: bytes | memoryview) -> object:
    return piece.obj if isinstance(piece, memoryview) else piece


class Handing:
    """The client's large calls. `arena_of` tells where those of a tool go, if its worker takes them this way."""

    def __init__(self, arena_of: Callable[[str], Arena | None]) -> None:
        self._arena_of = arena_of
        self._filling: Filling | None = None
        self._arrived = 0

    def arriving(self, reader: LineReader, data: bytes) -> None:
        """`data` came in last, and no line has ended: its string, if it has one, is taken as it comes."""
        arrived, self._arrived = self._arrived, reader.size
        try:
            if reader.size < handover.LARGE:
                self._filling = None
            elif arrived + len(data) != reader.size or arrived < handover.LARGE:
                self._filling = self._begin(b"".join(reader.unfinished))
            elif self._filling is not None:
                self._filling.more(data)
        except (OSError, ValueError):
            self._filling = None

    def _begin(self, head: bytes) -> Filling | None:
        start, tool = large_strings.begun(head), _TOOL.search(head, 0, large_strings.EDGE)
        if start is None or tool is None or tool.end() > start:
            return None
        before = _BEFORE.fullmatch(head, tool.end(), start)
        filling = self._free(tool[1].decode(), start, before[1] + b"}" if before is not None else b"")
        if filling is not None:
            filling.more(head[filling.at :])
        return filling

    def _free(self, tool: str, start: int, before: bytes = b"") -> Filling | None:
        arena = self._arena_of(tool)
        if arena is None or not arena.is_read() or (slot := arena.free_slot()) is None:
            return None
        return Filling(arena, slot, start, tool, before)

    def taken(self, frame: bytes) -> Handed | None:
        """A whole frame, the first that ended since; None where it has to go the ordinary way."""
        filling, self._filling, self._arrived = self._filling, None, 0
        call = large_calls.split(frame) if len(frame) >= handover.LARGE else None
        if call is None or call.end - call.start < handover.LARGE:
            return None
        try:
            name = frames.text_if_clear(call.parts.params["name"])
            if (filling is None or filling.start != call.start) and name is not None:
                filling = self._free(name, call.start)
            if filling is None:
                return None
            filling.finish(frame, call.end)
        except (OSError, ValueError):
            return None
        return Handed(filling, frame, call)
