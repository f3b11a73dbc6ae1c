"""Stopping a worker at a named point, so that somebody can be killed exactly there, or a file edited meanwhile.

A gate is a file that the worker makes when it comes to the point; it goes on when the file is gone
(`pause` of `perdure.platform.fault_points`).
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.processes import is_running


class Gates:
    """A folder of gates for the life of one host, or of one worker."""

    def __init__(self, folder: Path, points: tuple[str, ...]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._points = points

    def faults(self) -> str:
        return ";".join(f"{point}=pause:{self._folder / point}" for point in self._points)

    def waiting(self) -> tuple[str, int] | None:
        """A point at which a worker stands now, and the worker's pid."""
        for name in os.listdir(self._folder):
            try:
                text = (self._folder / name).read_text()
            except FileNotFoundError:
                continue
            if text and is_running(int(text)):
                return name, int(text)
            if text:
                self.open(name)  # it was killed meanwhile
        return None

    def open(self, point: str) -> None:
        (self._folder / point).unlink(missing_ok=True)

    def open_all(self) -> None:
        for name in os.listdir(self._folder):
            self.open(name)
