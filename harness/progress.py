"""How far a long run is, for whoever waits for it at a terminal or in a log."""

from __future__ import annotations

import sys
import time
from typing import Final

EVERY_S: Final = 30.0
_last = 0.0


def progress(done: str, began: float) -> None:
    """Said on standard error, now and then."""
    global _last
    now = time.monotonic()
    if now - max(began, _last) >= EVERY_S:
        _last = now
        print(f"  {done} in {now - began:.0f} s", file=sys.stderr, flush=True)
