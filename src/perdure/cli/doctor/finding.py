"""One finding: what is so, why it matters, what to do; and, where it is safe, the doing itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from perdure.host.settings import Settings

Level = Literal["ok", "note", "warning", "error"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "note", "warning", "error")


class DoctorContext(NamedTuple):
    """What is examined: the settings as a host would have them, the options that led to them, and the folder in which
    a client would start the host."""

    settings: Settings
    words: tuple[str, ...]
    folder: str = "."


class Finding(NamedTuple):
    check: str
    level: Level
    what: str
    why: str = ""
    todo: str = ""
    fix: Callable[[], str] | None = None
    """Does what is to be done and says what it did. Raises OSError where it cannot."""


def ok(check: str, what: str) -> Finding:
    return Finding(check, "ok", what)
