"""A text looked through while it still arrives: where it is worth a closer look, and whether its lines are short.

What has come is looked through together with the end of what had come before, so that what was cut in two is seen whole.
What comes out is the same as for the whole text in one: a test holds the two together.
"""

from __future__ import annotations

from typing import Final

from perdure.risk.gate import Hits, Vectorscan
from perdure.risk.runs import SHORT, has_only_short_lines

OVERLAP: Final = 2 * SHORT
"""More than any entry of the gate and what stands around it, and more than a short line."""


class Ahead:
    def __init__(self, gate: Vectorscan) -> None:
        self._gate = gate
        self._hits: list[tuple[int, int]] = []
        self._size = 0
        self._has_short_lines = True

    def reach(self, beginning: bytes | memoryview) -> None:
        """The text as far as it is there: longer each time."""
        begin = max(self._size - OVERLAP, 0)
        with memoryview(beginning)[begin:] as window:
            # What ended where the last window ended is known.
            news = self._gate.hits(window, ends_after=self._size - begin)
            self._hits += [(number, begin + at) for number, at in news]
            self._has_short_lines = self._has_short_lines and has_only_short_lines(window)
        self._size = len(beginning)

    def finish(self, data: bytes) -> tuple[Hits, bool]:
        """For the whole text, of which all that came before is the beginning: where to look, and whether it is known to
        have only short lines."""
        if self._size < len(data):
            self.reach(data)
        return self._hits, self._has_short_lines
