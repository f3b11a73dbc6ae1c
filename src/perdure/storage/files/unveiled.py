"""Opening a file over which there may be a veil (`veil.py`), for commands too that load next to nothing."""

from __future__ import annotations

import os
import time

PATIENCE_S = 20.0


def open_unveiled(path: str, flags: int, *, dir_fd: int | None = None, patience_s: float = PATIENCE_S) -> int:
    """`os.open` for those who ask not to be kept waiting by the kernel: a veil is lifted in a moment."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return os.open(path, flags, dir_fd=dir_fd)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.0005)
