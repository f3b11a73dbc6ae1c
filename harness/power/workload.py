"""What is written before the power goes: calls of the write surface, and what the files must be after each.

Calls come in lanes. A lane is one session that waits for each answer and keeps to its own folder, so its files are
at any time those after its last answered call, or after the one under way. Lanes run at the same time and share
rounds of the committer.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, Final

import msgspec

SIZES: Final = (0, 30, 30, 900, 5_000, 20_000, 60_000, 140_000, 300_000)
"""From nothing to what is kept as a file of its own."""
HUGE: Final = 1_100_000
"""Copied in a thread of its own; few, since the disk is small."""

Files = dict[str, str]
"""Path and sha256."""


class Step(msgspec.Struct, frozen=True):
    key: str
    tool: str
    arguments: dict[str, Any]


class Lane(msgspec.Struct, frozen=True):
    """`after[n]` are the files once n calls are done, `undone[n]` what one undo makes of them (None: nothing to undo)."""

    name: str
    steps: list[Step]
    after: list[Files]
    undone: list[Files | None]


def lanes(count: int, length: int, seed: int) -> list[Lane]:
    return [_Writer(f"lane{n}", random.Random(f"{seed} {n}")).lane(length) for n in range(count)]


class _Writer:
    """One lane while it is made up: its files, and what each call replaced, for undo."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self._name = name
        self._chance = chance
        self._files: dict[str, str] = {}
        self._replaced: list[dict[str, str | None]] = []
        self._count = 0

    def lane(self, length: int) -> Lane:
        made = Lane(self._name, [], [_hashed({})], [None])
        kinds = (self._create, self._overwrite, self._hot, self._hot, self._append, self._edit)
        more = (self._transaction, self._transaction, self._twice, self._move, self._delete, self._undo)
        while len(made.steps) < length:
            tool, arguments = self._chance.choice((*kinds, *more))()
            if not tool:
                continue
            made.steps.append(Step(f"{self._name}-{len(made.steps)}", tool, arguments))
            made.after.append(_hashed(self._files))
            made.undone.append(_hashed(self._before_last()) if self._replaced else None)
        return made

    # --- calls: each changes the files here as the tool will change them there ---------------------------

    def _create(self) -> tuple[str, dict[str, Any]]:
        path, content = self._new_path(), self._content()
        self._put({path: content})
        return "safe_write", {"path": path, "content": content}

    def _overwrite(self) -> tuple[str, dict[str, Any]]:
        return self._written(self._chance.choice([*self._files, self._new_path()]))

    def _hot(self) -> tuple[str, dict[str, Any]]:
        """One file again and again: several changes of it are open at once."""
        return self._written(f"{self._name}/hot")

    def _written(self, path: str) -> tuple[str, dict[str, Any]]:
        content = self._content()
        self._put({path: content})
        return "safe_write", {"path": path, "content": content, "mode": "overwrite"}

    def _append(self) -> tuple[str, dict[str, Any]]:
        path, content = self._chance.choice([f"{self._name}/log", *self._files]), f"{self._id()}\n"
        self._put({path: self._files.get(path, "") + content})
        return "safe_write", {"path": path, "content": content, "mode": "append"}

    def _edit(self) -> tuple[str, dict[str, Any]]:
        path = self._any(editable=True)
        if path is None:
            return "", {}
        old, new = self._files[path].split("\n", 1)[0], self._id()
        self._put({path: self._files[path].replace(old, new)})
        return "edit", {"path": path, "edits": [{"old": old, "new": new}]}

    def _transaction(self) -> tuple[str, dict[str, Any]]:
        """New files, an old one, one that goes: all or none."""
        changes: dict[str, str | None] = {
            self._new_path(): self._content(),
            self._new_path(): self._content(),
        }
        old, gone = self._any(), self._any()
        if gone is not None:
            changes[gone] = None
        if old is not None:
            changes[old] = self._content()
        operations = [
            {"op": "delete", "path": path}
            if content is None
            else {"op": "write", "path": path, "content": content, "mode": "overwrite"}
            for path, content in changes.items()
        ]
        self._put(changes)
        return "transaction", {"ops": operations}

    def _twice(self) -> tuple[str, dict[str, Any]]:
        """One file in two steps of one transaction: the first never is on disk."""
        path, other = self._any() or self._new_path(), self._new_path()
        first, second, beside = f"{self._id()}\n" + self._content(), self._id(), self._content()
        old = first.split("\n", 1)[0]
        self._put({path: first.replace(old, second), other: beside})
        return "transaction", {
            "ops": [
                {"op": "write", "path": path, "content": first, "mode": "overwrite"},
                {"op": "write", "path": other, "content": beside},
                {"op": "edit", "path": path, "edits": [{"old": old, "new": second}]},
            ]
        }

    def _move(self) -> tuple[str, dict[str, Any]]:
        path, to = self._any(), self._new_path()
        if path is None:
            return "", {}
        self._put({to: self._files[path], path: None})
        return "transaction", {"ops": [{"op": "move", "path": path, "to": to}]}

    def _delete(self) -> tuple[str, dict[str, Any]]:
        path = self._any()
        if path is None:
            return "", {}
        self._put({path: None})
        return "transaction", {"ops": [{"op": "delete", "path": path}]}

    def _undo(self) -> tuple[str, dict[str, Any]]:
        if not self._replaced:
            return "", {}
        self._files = self._before_last()
        self._replaced.pop()
        return "undo", {"session": self._name}

    # --- parts -----------------------------------------------------------------------------------------------

    def _put(self, changes: dict[str, str | None]) -> None:
        self._replaced.append({path: self._files.get(path) for path in changes})
        self._files = _changed(self._files, changes)

    def _before_last(self) -> dict[str, str]:
        return _changed(self._files, self._replaced[-1])

    def _any(self, *, editable: bool = False) -> str | None:
        found = [path for path, text in self._files.items() if not editable or text]
        return self._chance.choice(found) if found else None

    def _new_path(self) -> str:
        self._count += 1
        folders = "".join(f"d{self._chance.randrange(4)}/" for _ in range(self._chance.randrange(3)))
        return f"{self._name}/{folders}f{self._count}"

    def _id(self) -> str:
        self._count += 1
        return f"{self._name} {self._count:06d}."

    def _content(self) -> str:
        size = HUGE if self._chance.random() < 0.03 else self._chance.choice(SIZES)
        if size == 0:
            return ""
        lines = [self._chance.randbytes(32).hex() for _ in range(size // 65)]
        return "\n".join([self._id(), *lines, ""])


def _changed(files: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**files, **changes}
    return {path: content for path, content in merged.items() if content is not None}


def _hashed(files: dict[str, str]) -> Files:
    return {path: hashlib.sha256(content.encode()).hexdigest() for path, content in files.items()}
