"""Walls of base64: a run of 200 characters of it. A large text is handed to Vectorscan, which passes over gigabytes
in a second; without it, and for a small one, all that may stand in a wall is made one character and looked for.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any, Final

LENGTH: Final = 200
SMALL: Final = 8_192
WALL: Final = b"a" * LENGTH
BASE64: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"a" * 64,
)
PATTERN: Final = b"[A-Za-z0-9+/]{200}"


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
        return Vectorscan(importlib.import_module("hyperscan")).first
    except ImportError:
        return translated


class Vectorscan:
    """Scratch space belongs to a thread, since scans run beside each other."""

    def __init__(self, hyperscan: Any) -> None:
        self._hyperscan = hyperscan
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[PATTERN], ids=[0], elements=1, flags=[hyperscan.HS_FLAG_SINGLEMATCH]
        )
        self._threads = threading.local()

    def first(self, data: bytes) -> int:
        scratch = getattr(self._threads, "scratch", None)
        if scratch is None:
            scratch = self._threads.scratch = self._hyperscan.Scratch(self._database)
        ends: list[int] = []

        def seen(_number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end)

        self._database.scan(data, match_event_handler=seen, scratch=scratch)
        return ends[0] - LENGTH if ends else -1
