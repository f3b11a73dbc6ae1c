"""For each line of a file the change that brought it: the versions in the journal are walked back, as `git blame` does.

A move is followed to the old path. An undo is the author of no line: a line that it
brought back belongs to the change that first wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from perdure.storage.journal import Digest, Filter, Reading, Row
from perdure.storage.timeline import ANOTHER_PROGRAM
from perdure.text import lines

BEFORE_JOURNAL: Final = "before Perdure"
NOT_KEPT: Final = "unknown"
"""The content of an older version is kept no longer."""

LoadText = Callable[[Digest], str | None]
"""The text of a version; None where it is kept no longer."""


class Origin(msgspec.Struct, frozen=True):
    """The row that brought a line. None where no row did; `client` is then what is known."""

    row: Row | None
    client: str


def blame(journal: Reading, load: LoadText, path: str, text: str) -> list[Origin]:
    """The origin of each line of a text that is at this path now."""
    walk = _Walk(lines.split(text))
    before: int | None = None
    while walk.is_open:
        row = next(iter(journal.rows(Filter(path=path, before=before), 1)), None)
        if row is None:
            walk.close(Origin(None, BEFORE_JOURNAL))
            break
        newer = load(row.new_sha) if row.new_sha is not None else ""
        if newer is None:
            walk.close(Origin(None, NOT_KEPT))
            break
        walk.step(newer, Origin(None, ANOTHER_PROGRAM))  # what came between two versions, if anything did
        undone = journal.row(row.undoes) if row.undoes is not None else None
        if undone is not None and (undone.path, undone.old_sha) == (path, row.new_sha):
            before = undone.seq
            continue
        old_sha = row.old_sha
        if (source := row.detail.get("moved_from")) is not None and row.txn is not None:
            left = next((one for one in journal.transaction(row.txn) if one.path == source), None)
            if left is not None:
                path, old_sha = source, left.old_sha
        older = load(old_sha) if old_sha is not None else ""
        if older is None:
            walk.close(Origin(None, NOT_KEPT))
            break
        walk.step(older, Origin(row, row.client))
        before = row.seq
    return walk.origins


class _Walk:
    """One version after another, newest first. `_numbers` has for each of its lines the line of the text, or -1."""

    def __init__(self, text: list[str]) -> None:
        self._origins: list[Origin | None] = [None] * len(text)
        self._version = text
        self._numbers = list(range(len(text)))

    @property
    def is_open(self) -> bool:
        """Whether the origin of a line is still to be found."""
        return any(number >= 0 for number in self._numbers)

    @property
    def origins(self) -> list[Origin]:
        return [origin for origin in self._origins if origin is not None]

    def step(self, older: str, origin: Origin) -> None:
        """Lines that the older version does not have came from there."""
        version = lines.split(older)
        numbers = [-1] * len(version)
        for block in lines.find_matching_blocks(version, self._version):
            numbers[block.a : block.a + block.size] = self._numbers[block.b : block.b + block.size]
            self._numbers[block.b : block.b + block.size] = [-1] * block.size
        self.close(origin)
        self._version, self._numbers = version, numbers

    def close(self, origin: Origin) -> None:
        """All lines whose origin is still open are from there."""
        for number in self._numbers:
            if number >= 0:
                self._origins[number] = origin
        self._numbers = [-1] * len(self._numbers)
