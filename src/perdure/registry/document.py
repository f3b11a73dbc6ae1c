"""What the formats of a registry file have in common: slots that hold an entry or the reason why there is none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec

from perdure.registry.entry import Entry
from perdure.registry.errors import Unreadable

DUPLICATE = "duplicate"
MAX_BYTES: Final = 1024 * 1024
MAX_SLOTS: Final = 2000
"""Bounds of what is read: a host reads it while its sessions wait."""


class Slot(msgspec.Struct, frozen=True):
    """One place in the file that stands for a server."""

    name: str
    entry: Entry | None
    error: str = ""
    line: int = 0
    """Where it begins in the file, from 1; 0 where that is not known."""


class Document(ABC):
    """A registry file as it was read. Every change gives a new text and leaves this one."""

    text: str
    allowed: frozenset[str] | None
    """The commands that may be started; None where the file says nothing."""

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every place, in order. Of those with one name the first is the entry, the rest are duplicates."""
        return duplicates_marked(self._every_slot())

    def _check_count(self, starts: Sequence[int]) -> None:
        if len(starts) > MAX_SLOTS:
            [line] = lines_at(self.text, [starts[MAX_SLOTS]])
            raise Unreadable(f"line {line}: the file lists more than {MAX_SLOTS:,} servers")

    @abstractmethod
    def slot(self, name: str) -> Slot | None:
        """The first of this name; the others are not even looked at."""

    @abstractmethod
    def _every_slot(self) -> list[Slot]: ...

    @abstractmethod
    def installed(self, *entries: Entry) -> str:
        """With one more entry or several, whose names are not there."""

    @abstractmethod
    def uninstalled(self, *names: str) -> str: ...

    @abstractmethod
    def enabled(self, name: str, enabled: bool) -> str:
        """With the switch of an entry that is there."""

    @abstractmethod
    def replaced(self, entry: Entry) -> str:
        """With another entry in the place of the one of the same name."""


def lines_at(text: str, places: Sequence[int]) -> list[int]:
    """The lines, from 1, of places in a text, which are in order; in one pass."""
    ending = "\n" if "\n" in text else "\r"
    found, line, done = [], 1, 0
    for place in places:
        line += text.count(ending, done, place)
        done = place
        found.append(line)
    return found


def duplicates_marked(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    seen: set[str] = set()
    found = []
    for slot in slots:
        found.append(Slot(slot.name, None, DUPLICATE, slot.line) if slot.name in seen else slot)
        seen.add(slot.name)
    return tuple(found)
