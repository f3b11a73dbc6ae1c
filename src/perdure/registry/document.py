"""What the formats of a registry file have in common: slots that hold an entry or the reason why there is none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import msgspec

from perdure.registry.entry import Entry

DUPLICATE = "duplicate"


class Slot(msgspec.Struct, frozen=True):
    """One place in the file that stands for a server."""

    name: str
    entry: Entry | None
    error: str = ""


class Document(ABC):
    """A registry file as it was read. Every change gives a new text and leaves this one."""

    text: str
    allowed: frozenset[str] | None
    """The commands that may be started; None where the file says nothing."""

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every place, in order. Of those with one name the first is the entry, the rest are duplicates."""
        return duplicates_marked(self._every_slot())

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


def duplicates_marked(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    seen: set[str] = set()
    found = []
    for slot in slots:
        found.append(Slot(slot.name, None, DUPLICATE) if slot.name in seen else slot)
        seen.add(slot.name)
    return tuple(found)
