"""Walls of base64: a run of 200 characters of it. A large text is handed to Vectorscan, which passes over gigabytes
in a second; without it, and for a small one, all that may stand in a wall is made one character and looked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from perdure.risk.runs import SHORT, Runs

LENGTH: Final = SHORT + 1
SMALL: Final = 8_192
WALL: Final = b"a" * LENGTH
BASE64: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"a" * 64,
)
PATTERN: Final = b"[A-Za-z0-9+/]"


def first(data: bytes) -> int:
    """Where the first wall begins, or -1."""
    if len(data) < LENGTH:
        return -1
    return translated(data) if len(data) < SMALL else _search()(data)


def translated(data: bytes) -> int:
    return data.translate(BASE64).find(WALL)


@functools.cache
def _search() -> Callable[[bytes], int]:
    try:
        return Runs(PATTERN, LENGTH).first
    except ImportError:
        return translated
