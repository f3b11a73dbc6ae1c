"""Runs of one kind of bytes, found by Vectorscan: gigabytes a second, and other threads go on meanwhile."""

from __future__ import annotations

import importlib
import threading


class Runs:
    """Scratch space belongs to a thread, since scans run beside each other. Raises ImportError without the engine."""

    def __init__(self, kind: bytes, length: int) -> None:
        self._hyperscan = hyperscan = importlib.import_module("hyperscan")
        self._length = length
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[b"%b{%d}" % (kind, length)],
            ids=[0],
            elements=1,
            flags=[hyperscan.HS_FLAG_SINGLEMATCH],
        )
        self._threads = threading.local()

    def first(self, data: bytes) -> int:
        """Where the first run of this length begins, or -1."""
        scratch = getattr(self._threads, "scratch", None)
        if scratch is None:
            scratch = self._threads.scratch = self._hyperscan.Scratch(self._database)
        ends: list[int] = []

        def seen(_number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end)

        self._database.scan(data, match_event_handler=seen, scratch=scratch)
        return ends[0] - self._length if ends else -1
