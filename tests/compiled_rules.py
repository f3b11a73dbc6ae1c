"""The compiled rules of the risk check. A worker with a home of its own compiles them at its first write, which takes
longer than most tests: they are compiled once and put there."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

from perdure.risk import engine
from perdure.risk.scanner import Scanner
from perdure.storage.disk_cache import Shelved


@cache
def _files() -> dict[str, bytes]:
    """By the names that a worker gives them."""
    with (
        tempfile.TemporaryDirectory() as home,
        patch.dict(os.environ, PERDURE_HOME=home),
        patch.object(engine, "cache", Shelved("gate")),
    ):
        Scanner()
        return {path.name: path.read_bytes() for path in Path(home, "cache").iterdir()}


def put_compiled_rules(home: Path) -> None:
    """Into the PERDURE_HOME of a worker to be."""
    folder = home / "cache"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, data in _files().items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)
