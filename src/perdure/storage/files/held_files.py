"""Noticing that a file which is held open was removed, or replaced by another of its name."""

from __future__ import annotations

import os
from collections.abc import Iterable


class HeldFiles:
    """Paths that must go on leading to the files they lead to now."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._known = [(path, _identity(path)) for path in paths]

    def are_replaced(self) -> bool:
        return any(_identity(path) != known for path, known in self._known)


def _identity(path: str) -> tuple[int, int] | None:
    """None where nothing is there. A system that cannot tell is an error, and no answer."""
    try:
        facts = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return facts.st_dev, facts.st_ino
