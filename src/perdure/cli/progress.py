"""How far something is that takes longer than a moment: a bar on standard error, for people at a terminal only."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from perdure.cli.screen import Screen, cut

AFTER_S = 1.0
EVERY_S = 0.1
BAR = 24


class Progress:
    """`beside` is where the command's own lines go: a bar does not stand among them on one terminal."""

    def __init__(self, out: TextIO | None = None, beside: TextIO | None = None) -> None:
        out = out if out is not None else sys.stderr
        is_apart = beside is None or not beside.isatty()
        self._screen = Screen(out) if out.isatty() and is_apart else None
        self._due = time.monotonic() + AFTER_S
        self._has_drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_drawn and self._screen is not None:
            self._screen.out.write("\r\x1b[K")
            self._screen.out.flush()

    def stage(self, text: str) -> None:
        """Something that cannot say how far it is; shown at once."""
        if self._screen is not None:
            self._has_drawn = True
            self._screen.out.write(f"\r{self._screen.styled(cut(text, self._screen.width - 1), '')}\x1b[K")
            self._screen.out.flush()

    def at(self, stage: str, done: int, total: int = 0) -> None:
        """Called as often as one likes."""
        if self._screen is None or (now := time.monotonic()) < self._due:
            return
        self._due, self._has_drawn = now + EVERY_S, True
        text = f"{stage}  {done:,}"
        if total:
            share = min(done / total, 1.0)
            full = int(share * BAR)
            text = f"{stage}  {'█' * full}{'░' * (BAR - full)} {share:4.0%}  {done:,} of {total:,}"
        shown = self._screen.styled(cut(text, self._screen.width - 1), "")
        self._screen.out.write(f"\r{shown}\x1b[K")
        self._screen.out.flush()
