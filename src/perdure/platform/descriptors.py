"""Open descriptors: reading and writing at an offset, whether a call waits, the capacity of pipes.

`pread`, `pwrite` and `set_blocking` are those of `os`, which not every system has.
"""

from __future__ import annotations

import fcntl
import select
from os import pread, pwrite, set_blocking
from typing import Final

__all__ = ["ATOMIC_BYTES", "pipe_size", "pread", "pwrite", "set_blocking", "widen"]

ATOMIC_BYTES: Final = select.PIPE_BUF
"""What a pipe takes whole or not at all."""

_USUAL_BYTES: Final = 1 << 16
_WIDE_BYTES: Final = 1 << 18
_SET_SIZE: Final = 1031  # F_SETPIPE_SZ, which the module `fcntl` names only in some versions


def pipe_size(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) if hasattr(fcntl, "F_GETPIPE_SZ") else _USUAL_BYTES


def widen(fd: int) -> None:
    """Let a pipe hold more, so that a large frame needs fewer turns. Where the system refuses, nothing is lost.

    No larger than this: all pipes of a user share a limit, beyond which new ones get next to nothing.
    """
    try:
        fcntl.fcntl(fd, _SET_SIZE, _WIDE_BYTES)
    except OSError:
        pass
