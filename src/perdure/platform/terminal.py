"""A terminal that gives each key at once and does not echo it."""

from __future__ import annotations

import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_keys(fd: int) -> Iterator[None]:
    """The terminal is as before afterwards."""
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
