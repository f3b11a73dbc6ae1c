"""Memory for large frames: what one needed is kept for the next.

By default the C library hands the pages of a large frame back when it is done with, and the next one takes a page
fault for each of them, which costs more than all else that a host does with it. One arena serves all threads: each
would keep as much for itself.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

LARGE: Final = 1 << 20
KEPT: Final = 32 << 20
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def for_worker() -> dict[str, str]:
    """Its environment says so from its start. What the user has set there stays."""
    wanted = {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_TRIM_THRESHOLD_": str(KEPT),
        "MALLOC_MMAP_THRESHOLD_": str(KEPT),
    }
    return {name: value for name, value in wanted.items() if name not in os.environ}


@cache
def keep() -> None:
    """From here on in this process, which cannot choose its environment. Where there is no such setting, nothing."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        for setting in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(setting, KEPT)
    except (ImportError, OSError, AttributeError):
        pass
