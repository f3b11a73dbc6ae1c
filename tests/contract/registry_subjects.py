"""The backends of the registry that the contract suite runs over.

A subject is one registry and ways to look at it from outside. Another backend joins by one line in `SUBJECTS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from perdure.registry.filesystem import FileBackend, open_json, open_markdown
from perdure.registry.port import EditableBackend


class Subject(Protocol):
    """`open` gives a new instance on the same registry; `other` one on another scope; `stored` all that it keeps."""

    def open(self, environ: Mapping[str, str] | None = None) -> EditableBackend: ...

    def other(self) -> EditableBackend: ...

    def stored(self) -> bytes: ...

    def break_down(self) -> None:
        """Make it unreachable."""

    def close(self) -> None: ...


class FileSubject:
    def __init__(
        self, folder: Path, name: str, opener: Callable[[str, Mapping[str, str]], FileBackend]
    ) -> None:
        self.path = folder / name
        self._opener = opener

    def open(self, environ: Mapping[str, str] | None = None) -> FileBackend:
        return self._opener(str(self.path), os.environ if environ is None else environ)

    def other(self) -> FileBackend:
        folder = self.path.parent / "other"
        folder.mkdir(exist_ok=True)
        return self._opener(str(folder / self.path.name), os.environ)

    def stored(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def break_down(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.mkdir()

    def close(self) -> None:
        pass


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "markdown": lambda folder: FileSubject(folder, "mcp.md", open_markdown),
    "json": lambda folder: FileSubject(folder, "mcp.json", open_json),
}
