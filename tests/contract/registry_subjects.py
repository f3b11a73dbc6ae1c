"""The backends of the registry that the contract suite runs over.

A subject is one registry and ways to look at it from outside. Another backend joins by one line in `SUBJECTS`.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Protocol

from perdure.registry.backend import EditableBackend
from perdure.registry.entry import Entry
from perdure.registry.file.backend import FileBackend, open_json, open_markdown
from perdure.registry.http.backend import HttpCatalog, open_http
from perdure.registry.portable import without_secrets


class Subject(Protocol):
    """`open` gives a new instance on the same registry; `other` one on another scope; `stored` all that it keeps."""

    def open(self, environ: Mapping[str, str] | None = None) -> EditableBackend: ...

    def other(self) -> EditableBackend: ...

    def stored(self) -> bytes: ...

    def fit(self, entry: Entry) -> Entry:
        """The entry as this registry may keep it: a catalog holds references only."""

    def environ(self) -> dict[str, str]:
        """With what a host is told to mount from it."""

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

    def fit(self, entry: Entry) -> Entry:
        return entry

    def environ(self) -> dict[str, str]:
        return {"PERDURE_REGISTRY": str(self.path)}

    def break_down(self) -> None:
        self.path.unlink(missing_ok=True)
        self.path.mkdir()

    def close(self) -> None:
        pass


class HttpSubject:
    """A tiered catalog: a real `perdure registry serve`, one per tier and run, its file emptied for each test."""

    TOKEN = "t-0123456789"
    _running: ClassVar[dict[int, tuple[str, Path]]] = {}

    def __init__(self, tier: int) -> None:
        if tier not in self._running:
            self._running[tier] = self._started(tier)
        self._url, self.path = self._running[tier]
        self.path.unlink(missing_ok=True)

    def _started(self, tier: int) -> tuple[str, Path]:
        folder = tempfile.mkdtemp(prefix="perdure-catalog-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        path = Path(folder) / "mcp.md"
        words = ["--registry", str(path), "serve", "--port", "0", "--tier", str(tier), "--scope", "mine"]
        server = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli.main", "registry", *words],
            env={**os.environ, "PERDURE_TOKEN": self.TOKEN},
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(server.kill)
        assert server.stdout is not None
        return server.stdout.readline().split(" at ")[1].split()[0], path

    def open(self, environ: Mapping[str, str] | None = None) -> HttpCatalog:
        return self._opened("mine", os.environ if environ is None else environ)

    def other(self) -> HttpCatalog:
        return self._opened("other", os.environ)

    def _opened(self, scope: str, environ: Mapping[str, str]) -> HttpCatalog:
        return open_http(
            f"{self._url}?agent_scope={scope}", {**environ, "PERDURE_REGISTRY_TOKEN": self.TOKEN}
        )

    def stored(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def fit(self, entry: Entry) -> Entry:
        return without_secrets(entry)

    def environ(self) -> dict[str, str]:
        return {
            "PERDURE_REGISTRY": f"{self._url}?agent_scope=mine",
            "PERDURE_REGISTRY_TOKEN": self.TOKEN,
        }

    def break_down(self) -> None:
        self._url = "http://127.0.0.1:1/"

    def close(self) -> None:
        pass


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "markdown": lambda folder: FileSubject(folder, "mcp.md", open_markdown),
    "json": lambda folder: FileSubject(folder, "mcp.json", open_json),
    "http tier 2": lambda folder: HttpSubject(2),
    "http tier 3": lambda folder: HttpSubject(3),
}
