"""The worker's side of the memory in which the host hands it large strings (`model/handover.py`).

A text that somebody takes while it arrives stays in its slot until its call is over: nobody copies it.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from perdure.model import frames, handover
from perdure.model.frames import Members, Message, Request
from perdure.model.handover import News, Note
from perdure.surfaces.port import Arriving

WHOLE: Final = 4096
"""A text is taken in multiples of this while it arrives."""

Given = Mapping[str, Raw | str]
"""Arguments of which some were read already."""


class Handed(msgspec.Struct, frozen=True):
    """A request's params and arguments, as `frames.Inside`, with the text that was handed over."""

    params: Members
    arguments: Given
    close: Callable[[], None] = lambda: None
    """The call is over."""


class Followed(NamedTuple):
    """A text in a slot, and who takes it while it arrives."""

    serial: int
    arriving: Arriving


class Arena:
    """`takes` tells who wants the beginning of a text for a tool, if anybody does."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._memory = memoryview(mmap.mmap(fd, handover.SIZE, prot=mmap.PROT_READ))
        self.takes: Callable[[News], Arriving | None] = lambda news: None
        self._followed: dict[int, Followed] = {}

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
            claimed = cls(fd)
            os.pwrite(fd, handover.MARK, 0)
        except OSError:
            return None
        return claimed

    def hear(self, news: News) -> None:
        arriving = self._of(news)
        if arriving is None and (arriving := self.takes(news)) is not None:
            self._followed[news.slot] = Followed(news.serial, arriving)
        if arriving is not None:
            arriving.reach(self._text(news.slot, news.size // WHOLE * WHOLE))

    def _of(self, said: News | Note) -> Arriving | None:
        """Who takes this text; who took another one in its slot has nothing to wait for any more."""
        followed = self._followed.get(said.slot)
        if followed is None:
            return None
        if followed.serial != said.serial:
            del self._followed[said.slot]
            followed.arriving.close()
            return None
        return followed.arriving

    def _text(self, slot: int, size: int) -> memoryview:
        begin = handover.begin(slot)
        return self._memory[begin : begin + size]

    def request(self, note: Note) -> tuple[Message, Handed | None]:
        """The request of a note, and what is in it."""
        arriving, data = self._of(note), self._text(note.slot, note.size)
        if arriving is not None:
            del self._followed[note.slot]
            arriving.end(data)
        text = str(data, "utf-8")
        if arriving is None:
            self._give_back(note.slot)
            close: Callable[[], None] = _nothing
        else:
            arriving.becomes(text)
            close = self._closing(note.slot, arriving)
        message = frames.decode(note.frame)
        if not isinstance(message, Request) or message.params is None:
            close()
            return message, None
        params = frames.members(message.params)
        given: dict[str, Raw | str] = dict(frames.members(params["arguments"]))
        given[note.name] = text
        return message, Handed(params, given, close)

    def _closing(self, slot: int, arriving: Arriving) -> Callable[[], None]:
        def close() -> None:
            arriving.close()
            self._give_back(slot)

        return close

    def _give_back(self, slot: int) -> None:
        os.pwrite(self._fd, b"\0", handover.FLAGS + slot)


def _nothing() -> None:
    pass
