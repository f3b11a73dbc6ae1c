"""The worker's side of the memory in which the host hands it large strings (`model/handover.py`)."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec
from msgspec import Raw

from perdure.model import frames, handover
from perdure.model.frames import Members, Message, Request
from perdure.model.handover import Note

Given = Mapping[str, Raw | str]
"""Arguments of which some were read already."""


class Handed(msgspec.Struct, frozen=True):
    """A request's params and arguments, as `frames.Inside`, with the text that was handed over."""

    params: Members
    arguments: Given


class Arena:
    def __init__(self, fd: int) -> None:
        self._fd = fd

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

    def request(self, note: Note) -> tuple[Message, Handed | None]:
        """The request of a note, and what is in it."""
        text = self._taken(note)
        message = frames.decode(note.frame)
        if not isinstance(message, Request) or message.params is None:
            return message, None
        params = frames.members(message.params)
        given: dict[str, Raw | str] = dict(frames.members(params["arguments"]))
        given[note.name] = text
        return message, Handed(params, given)

    def _taken(self, note: Note) -> str:
        data = os.pread(self._fd, note.size, handover.begin(note.slot))
        os.pwrite(self._fd, b"\0", handover.FLAGS + note.slot)
        return data.decode()
