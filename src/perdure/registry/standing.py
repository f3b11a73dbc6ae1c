"""The changes that were made a moment ago, entry by entry, and whether a stale copy was written over them.

A program that read the file before a change and writes it back afterwards brings back exactly what an entry was before
(not there, or as it was), and knows nothing of any later change either. So an entry that is in the state it had
before is taken for undone, unless the file also holds something that was installed later, which nobody can have read
without that change. Any other state is an edit that somebody meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from perdure.registry.document import Document
from perdure.registry.entry import Entry
from perdure.registry.entry_json import from_object, to_object
from perdure.registry.errors import Unreadable

LONGEST_S: Final = 30.0
REMEMBERED: Final = 256

State = str | None
"""A hash of what stands in the file for an entry; None for nothing."""


class Step(NamedTuple):
    """What a change makes of one entry: its state before and after, and the entry as JSON where it is a sound one."""

    about: str
    before: State
    after: State
    entry: str | None


class Standing(msgspec.Struct, frozen=True):
    """One entry as it was changed last: what it was before, and before that; when it was made first (`since`), last
    (`at`, with the number of that change), and until when it is looked after. `is_theirs`: another program changed
    it, and we stood in front of that for a moment."""

    about: str
    befores: list[State]
    after: State
    entry: str | None
    number: int
    since: float
    at: float
    until: float
    is_theirs: bool = False

    def is_undone_in(self, now: State) -> bool:
        return now != self.after and now in self.befores and (self.after is None or self.entry is not None)

    def is_proof_in(self, now: State) -> bool:
        """Whether who wrote this must have read the change: nothing else can have brought it into the file."""
        return now is not None and now == self.after and None in self.befores


def noted(
    standing: Sequence[Standing], steps: Iterable[Step], number: int, now: float, for_s: float
) -> list[Standing]:
    """With these steps, each of which takes the place of the last one about the same."""
    found = {one.about: one for one in standing}
    for step in steps:
        old = found.pop(step.about, None)
        befores = dict.fromkeys([*(old.befores if old is not None else ()), step.before])
        until = max(now + for_s, old.until if old is not None else 0.0)
        if until > now:
            found[step.about] = Standing(
                step.about, list(befores), step.after, step.entry, number, now, now, until
            )
    return list(found.values())[-REMEMBERED:]


def made_again(
    standing: Sequence[Standing], names: set[str], number: int, now: float, for_s: float
) -> list[Standing]:
    """With those of these names made anew. Not for ever: somebody who insists is right in the end."""
    return [
        structs.replace(one, number=number, at=now, until=min(now + for_s, one.since + LONGEST_S))
        if one.about in names
        else one
        for one in standing
    ]


class Keeper:
    """Looks after the entries of one kind of document, which `parsed` makes of a content."""

    def __init__(self, parsed: Callable[[bytes | None], Document]) -> None:
        self._parsed = parsed

    def steps(self, old: bytes | None, new: bytes | None, names: Iterable[str] | None = None) -> list[Step]:
        """What changed from one content to another, of all entries or of these. What cannot be read did not change."""
        try:
            before, after = self._parsed(old), self._parsed(new)
        except Unreadable:
            return []
        if names is None:
            names = dict.fromkeys(slot.name for slot in (*before.slots, *after.slots))
        found = ((name, _state(before, name), _state(after, name)) for name in names)
        return [Step(name, one, other, _entry(after, name)) for name, one, other in found if one != other]

    def is_made(self, data: bytes | None, steps: Sequence[Step]) -> bool:
        """Whether all of it is there already."""
        try:
            document = self._parsed(data)
        except Unreadable:
            return False
        return all(_state(document, step.about) == step.after for step in steps)

    def undone(self, data: bytes | None, standing: Sequence[Standing]) -> list[Standing]:
        """What a stale copy was written over. A file that cannot be read is in another program's hands."""
        try:
            document = self._parsed(data)
        except Unreadable:
            return []
        states = {one.about: _state(document, one.about) for one in standing}
        known = max((one.number for one in standing if one.is_proof_in(states[one.about])), default=-1)
        return [
            one
            for one in standing
            if one.is_undone_in(states[one.about]) and (one.is_theirs or one.number > known)
        ]

    def restored(
        self, data: bytes | None, standing: Sequence[Standing]
    ) -> tuple[bytes | None, list[Standing]]:
        """The content with everything in it that was undone, and what that is."""
        undone = self.undone(data, standing)
        if not undone:
            return data, []
        document = self._parsed(data)
        missing = [one for one in undone if document.mark(one.about) is None]
        data = _bytes(document.uninstalled(*(one.about for one in undone if one.after is None)))
        for one in undone:
            if one.after is not None and one not in missing:
                data = _bytes(_changed(self._parsed(data), _decoded(one)))
        if missing:
            data = _bytes(self._parsed(data).installed(*map(_decoded, missing)))
        return data, undone


def _changed(document: Document, entry: Entry) -> str:
    slot = document.slot(entry.name)
    if slot is None or slot.entry is None:
        return document.text  # what was unsound is never changed but by removing it
    if slot.entry.replaced(enabled=entry.enabled) == entry:
        return document.enabled(entry.name, entry.enabled)
    return document.replaced(entry)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _state(document: Document, name: str) -> State:
    mark = document.mark(name)
    return None if mark is None else hashlib.sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _entry(document: Document, name: str) -> str | None:
    slot = document.slot(name)
    return None if slot is None or slot.entry is None else msgspec.json.encode(to_object(slot.entry)).decode()


def _decoded(one: Standing) -> Entry:
    assert one.entry is not None
    return from_object(one.about, msgspec.json.decode(one.entry))
