"""Large contents straight to the device, past the page cache.

What has to be on the device before it counts gains nothing from a copy in the kernel's memory, and that is most of the
price of a large write where fresh memory is dear, as in a virtual machine that gives back what it does not use.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from perdure.model.fault_points import shortened
from perdure.model.spares import Spares
from perdure.storage.durable import write_all

if sys.platform != "win32":
    import fcntl

PIECE: Final = 1 << 20
ALIGNED: Final = 4096
"""Places in memory and in the file, and sizes, are multiples of this: enough for every device."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
# Not shared with whom this process forks.
_PRIVATE: Final = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if sys.platform != "win32" else {}
_stages: Final = Spares(lambda: mmap.mmap(-1, PIECE, **_PRIVATE))
"""Aligned memory to write from."""


class DirectFile:
    """An empty file, filled from its start. Where the system or a size does not allow it, and from there on, it is
    written in the ordinary way. `name` is the fault point of each piece. The descriptor stays the caller's.

    A view is written from where it is, which has to be aligned memory; bytes are nowhere in particular."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self._name = name
        self.is_direct = _switched(fd, on=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def write(self, data: bytes | memoryview) -> None:
        whole, done = memoryview(data), 0
        if isinstance(data, memoryview) and self.is_direct:
            done = self._piece(whole, self._in_place)
        while self.is_direct and done < len(data):
            done += self._piece(whole[done : done + PIECE], self._staged)
        if done < len(data):
            write_all(self.fd, whole[done:], self._name)

    def _piece(self, data: memoryview, put: Callable[[memoryview], int]) -> int:
        """How much of it could be written this way; if not all of it, nothing more is."""
        size = shortened(self._name, len(data)) // ALIGNED * ALIGNED
        written = 0
        if size:
            try:
                written = put(data[:size])
            except OSError as error:
                if error.errno != errno.EINVAL:  # a device that wants more of sizes and places
                    raise
        if written < len(data):
            self.end()
        return written

    def _in_place(self, data: memoryview) -> int:
        return os.write(self.fd, data)

    def _staged(self, data: memoryview) -> int:
        stage = _stages.take()
        stage[: len(data)] = data
        try:
            with memoryview(stage) as memory, memory[: len(data)] as part:
                return os.write(self.fd, part)
        finally:
            _stages.give(stage)

    def end(self) -> None:
        if self.is_direct:
            self.is_direct = False
            _switched(self.fd, on=False)


def _switched(fd: int, *, on: bool) -> bool:
    if not _DIRECT:
        return False
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
    except OSError:
        return False  # a file system that knows only the page cache
    return True
