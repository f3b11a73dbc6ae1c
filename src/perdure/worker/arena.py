"""The worker's side of the memory in which the host hands it large strings (`model/handover.py`)."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final

import msgspec
from msgspec import Raw

from perdure.model import frames, handover
from perdure.model.frames import Members, Message, Request
from perdure.model.handover import News, Note
from perdure.storage.beside import Beside
from perdure.surfaces.port import Arriving

PIECE: Final = 1 << 20
WHOLE: Final = 4096
"""A text is taken in multiples of this while it arrives."""

Given = Mapping[str, Raw | str]
"""Arguments of which some were read already."""


class Handed(msgspec.Struct, frozen=True):
    """A request's params and arguments, as `frames.Inside`, with the text that was handed over."""

    params: Members
    arguments: Given
    following: Following | None = None

    def close(self) -> None:
        """The call is over."""
        if self.following is not None:
            self.following.close()


class Following:
    """A text that is taken by whom it is for while it arrives in a slot: read in a thread of its own."""

    def __init__(self, serial: int, arriving: Arriving, read: Callable[[int, int], bytes]) -> None:
        self.serial = serial
        self._arriving = arriving
        self._read = read
        self._sizes: SimpleQueue[int] = SimpleQueue()
        self._guard = threading.Lock()
        self._has_ended = self._is_unwanted = self._is_over = False
        self._taking = Beside(self._take)

    def reach(self, size: int) -> None:
        self._sizes.put(size // WHOLE * WHOLE)

    def end(self) -> None:
        """From here on nothing is read from the slot."""
        with self._guard:
            self._has_ended = True
        self._sizes.put(0)

    def complete(self, text: str, data: bytes) -> None:
        """After the end: it is all there. What was not taken by then is taken from the data."""
        self._arriving.complete(text, data, self._taking.result)

    def close(self) -> None:
        """Nobody needs it any more. Who still takes something closes it then: nobody waits for that."""
        self.end()
        with self._guard:
            self._is_unwanted = True
            is_over = self._is_over
        if is_over:
            self._arriving.close()

    def _take(self) -> None:
        try:
            at = 0
            while size := self._sizes.get():
                while at < size and (piece := self._piece(at, size)):
                    self._arriving.more(piece)
                    at += len(piece)
        finally:
            with self._guard:
                self._is_over = True
                is_unwanted = self._is_unwanted
            if is_unwanted:
                self._arriving.close()

    def _piece(self, at: int, size: int) -> bytes:
        with self._guard:
            return b"" if self._has_ended else self._read(at, min(PIECE, size - at))


class Arena:
    """`takes` tells who wants the beginning of a text for a tool, if anybody does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.takes: Callable[[str], Arriving | None] = lambda tool: None
        self._following: dict[int, Following] = {}

    @classmethod
    def claim(cls) -> Arena | None:
        """What the host opened for this process, and for nobody whom it starts; None where there is no such host."""
        told = os.environ.pop(handover.VARIABLE, "")
        if not told.isdecimal():
            return None
        fd = int(told)
        try:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink or facts.st_size != handover.SIZE:
                return None
            os.set_inheritable(fd, False)
            os.pwrite(fd, handover.MARK, 0)
        except OSError:
            return None
        return cls(fd)

    def hear(self, news: News) -> None:
        following = self._of(news)
        if following is None and (arriving := self.takes(news.tool)) is not None:
            begin = handover.begin(news.slot)
            following = Following(
                news.serial, arriving, lambda at, size: os.pread(self._fd, size, begin + at)
            )
            self._following[news.slot] = following
        if following is not None:
            following.reach(news.size)

    def _of(self, said: News | Note) -> Following | None:
        """Who follows this text; who followed another one in its slot has nothing to wait for any more."""
        following = self._following.get(said.slot)
        if following is not None and following.serial != said.serial:
            del self._following[said.slot]
            following.close()
            return None
        return following

    def request(self, note: Note) -> tuple[Message, Handed | None]:
        """The request of a note, and what is in it."""
        following = self._of(note)
        data = os.pread(self._fd, note.size, handover.begin(note.slot))
        if following is not None:
            following.end()
            del self._following[note.slot]
        os.pwrite(self._fd, b"\0", handover.FLAGS + note.slot)
        text = data.decode()
        if following is not None:
            following.complete(text, data)
        message = frames.decode(note.frame)
        if not isinstance(message, Request) or message.params is None:
            if following is not None:
                following.close()
            return message, None
        params = frames.members(message.params)
        given: dict[str, Raw | str] = dict(frames.members(params["arguments"]))
        given[note.name] = text
        return message, Handed(params, given, following)
