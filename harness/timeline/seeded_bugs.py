"""Seeded bugs of the time machine. The trial of each is the module that must find it."""

from __future__ import annotations

from typing import Final

from harness.seeded_bugs import SeededBugs

BUGS: Final = SeededBugs()
