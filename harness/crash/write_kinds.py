"""Every kind of change the write surface makes, each in a folder of its own: what is there before, the call, what after.

Tests of failing system calls run each of them again and again under another failure, so a kind says exactly which
bytes stand where when it was done, and which when it was not.
"""

from __future__ import annotations

import functools
import os
import stat
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.storage.files import temp_names

Files = dict[str, tuple[int, bytes]]
"""Mode and content by path; a directory has no content and ends in a slash."""

_OLD: Final = b"one\ntwo\nthree\n"
_NEW: Final = b"1\n2\n3\n"
_LARGE_OLD: Final = b"old line of a large file\n" * 8_000
_LARGE_NEW: Final = b"new line of a large file\n" * 12_000


class Kind(msgspec.Struct, frozen=True):
    """`before` is put there by hand, `first` by a call of its own, which `undo` then takes back."""

    name: str
    tool: str
    arguments: dict[str, Any]
    after: dict[str, bytes]
    before: dict[str, bytes] = {}
    first: dict[str, Any] | None = None
    is_huge: bool = False
    """Larger than a pipe holds, and copied in a thread of its own."""

    def prepare(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        for name, content in self.before.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o640)

    def call(self, folder: str, journal_id: str | None) -> dict[str, Any]:
        """The arguments for files in this folder of the workspace."""
        placed: dict[str, Any] = _placed(self.arguments, folder)
        return {**placed, "journal_id": journal_id} if journal_id is not None else placed

    def first_call(self, folder: str) -> dict[str, Any] | None:
        return _placed(self.first, folder) if self.first is not None else None

    def is_done(self, found: Files) -> bool:
        return contents(found) == self.after


def _write(path: str, content: bytes, mode: str) -> dict[str, Any]:
    return {"path": path, "content": content.decode(), "mode": mode}


def _transaction(*ops: dict[str, Any]) -> dict[str, Any]:
    return {"ops": list(ops)}


KINDS: Final = (
    Kind("create", "safe_write", _write("f", _NEW, "create"), {"f": _NEW}),
    Kind("create_deep", "safe_write", _write("x/y/f", _NEW, "create"), {"x/y/f": _NEW}),
    Kind("overwrite", "safe_write", _write("f", _NEW, "overwrite"), {"f": _NEW}, {"f": _OLD}),
    Kind("append", "safe_write", _write("f", _NEW, "append"), {"f": _OLD + _NEW}, {"f": _OLD}),
    Kind(
        "edit",
        "edit",
        {"path": "f", "edits": [{"old": "two", "new": "2"}]},
        {"f": b"one\n2\nthree\n"},
        {"f": _OLD},
    ),
    Kind(
        "transaction",
        "transaction",
        _transaction(
            {"op": "write", **_write("f", _NEW, "overwrite")},
            {"op": "edit", "path": "g", "edits": [{"old": "two", "new": "2"}]},
            {"op": "write", **_write("h/i", _NEW, "create")},
        ),
        {"f": _NEW, "g": b"one\n2\nthree\n", "h/i": _NEW},
        {"f": _OLD, "g": _OLD},
    ),
    Kind("delete", "transaction", _transaction({"op": "delete", "path": "f"}), {}, {"f": _OLD}),
    Kind(
        "move",
        "transaction",
        _transaction({"op": "move", "path": "f", "to": "g"}),
        {"g": _OLD},
        {"f": _OLD},
    ),
    Kind("undo", "undo", {}, {"f": _OLD}, {"f": _OLD}, {"path": "f", "edits": [{"old": "two", "new": "2"}]}),
    Kind("large_create", "safe_write", _write("f", _LARGE_NEW, "create"), {"f": _LARGE_NEW}),
    Kind(
        "large_overwrite",
        "safe_write",
        _write("f", _LARGE_NEW, "overwrite"),
        {"f": _LARGE_NEW},
        {"f": _LARGE_OLD},
    ),
    Kind(
        "append_to_large",
        "safe_write",
        _write("f", _NEW, "append"),
        {"f": _LARGE_OLD + _NEW},
        {"f": _LARGE_OLD},
    ),
)

_HUGE: Final = b"a line of a file that is copied beside its commit\n" * 25_000
_huge: Final = functools.partial(Kind, tool="safe_write", is_huge=True)
HUGE_KINDS: Final = (
    _huge("huge_create", arguments=_write("f", _HUGE, "create"), after={"f": _HUGE}),
    _huge("huge_create_deep", arguments=_write("x/y/f", _HUGE, "create"), after={"x/y/f": _HUGE}),
    _huge(
        "huge_overwrite", arguments=_write("f", _HUGE, "overwrite"), after={"f": _HUGE}, before={"f": _OLD}
    ),
    _huge(
        "huge_append", arguments=_write("f", _HUGE, "append"), after={"f": _OLD + _HUGE}, before={"f": _OLD}
    ),
)


def contents(files: Files) -> dict[str, bytes]:
    return {name: content for name, (_, content) in files.items() if not name.endswith(os.sep)}


def found_in(folder: Path) -> tuple[Files, list[str]]:
    """What stands in a folder, and beside it the names of our temporary files."""
    files: Files = {}
    temporary: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        mode = path.stat().st_mode
        if temp_names.parsed(path.name) is not None:
            temporary.append(name)
        elif stat.S_ISDIR(mode):
            files[name + os.sep] = (stat.S_IMODE(mode), b"")
        else:
            files[name] = (stat.S_IMODE(mode), path.read_bytes())
    return files, temporary


def _placed(value: Any, folder: str) -> Any:
    """The same arguments with every path beneath the folder."""
    if isinstance(value, dict):
        return {
            key: f"{folder}/{inner}" if key in ("path", "to") else _placed(inner, folder)
            for key, inner in value.items()
        }
    return [_placed(inner, folder) for inner in value] if isinstance(value, list) else value
