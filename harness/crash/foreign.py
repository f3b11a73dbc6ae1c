"""Another program that takes no locks: it edits the very files that a stopped worker is about to replace."""

from __future__ import annotations

import os
import random
from typing import Final

import msgspec

from harness.crash.calls import Call, sha256
from harness.crash.place import Place

AT: Final = "commit.decided"
"""When it edits: changes are decided, and no file is touched yet."""
_LEFT_ALONE: Final = ("patch", "move", "undo", "restore")
"""Calls whose effect on an edited file nobody could foretell."""


class Edit(msgspec.Struct, frozen=True):
    """What it found (None: no file) and what it left."""

    path: str
    before: bytes | None
    after: bytes


class Editor:
    def __init__(self, place: Place, chance: random.Random) -> None:
        self.edits: list[Edit] = []
        self.touched: set[str] = set()
        self._place = place
        self._chance = chance

    def lay_out(self, files: dict[str, bytes]) -> None:
        """Files from before the first session."""
        for path, content in files.items():
            self._place.file(path).parent.mkdir(parents=True, exist_ok=True)
            self._place.file(path).write_bytes(content)
            self.edits.append(Edit(path, None, sha256(content)))

    def edit_one(self, calls: list[Call]) -> Edit | None:
        """Change a file that one of these calls is about to change, or make it first."""
        paths = sorted({path for call in calls for path in call.paths if call.kind not in _LEFT_ALONE})
        if not paths:
            return None
        path = self._chance.choice(paths)
        old = self._place.content(path)
        new = (old or b"") + f"foreign {len(self.edits):05}\n".encode()
        self._put(path, old, new)
        edit = Edit(path, sha256(old) if old is not None else None, sha256(new))
        self.edits.append(edit)
        self.touched.add(path)
        return edit

    def _put(self, path: str, old: bytes | None, new: bytes) -> None:
        """As editors do: into the file, or beside it and over it."""
        file = self._place.file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if old is not None and self._chance.random() < 0.5:
            with open(file, "r+b") as opened:
                opened.write(new)
            return
        beside = file.with_name(".saved~")
        beside.write_bytes(new)
        os.rename(beside, file)
