"""A large content put into a file while it is being kept, before it is decided that there will be such a file.

What stands at its path, and where that leads, is known for sure only under the lock. So the file has no name yet: whoever
plans the change takes it if the plan leads to the same directory; if not, it is gone without a trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from perdure.model.fault_points import point
from perdure.storage.beside import Beside
from perdure.storage.durable import close_quietly
from perdure.storage.files import unnamed
from perdure.storage.files.pending import mode_of
from perdure.surfaces.write.confine import Place

ROOM: Final = 4
"""How many times its size must be free, so that it takes no room from what is kept."""


class Beforehand:
    """`find` tells where it shall stand. Closed when its call is over."""

    def __init__(self, find: Callable[[], Place], data: bytes) -> None:
        self._place: Place | None = None
        self._fd: int | None = None
        self._filling = Beside(lambda: self._fill(find, data))

    def take(self, dir_fd: int, *, is_new: bool) -> int | None:
        """The file, once, for whoever puts this content into this directory. None where there is none for that."""
        self._filling.result()
        fd, place = self._fd, self._place
        if fd is None or place is None or (place.found is None) != is_new:
            return None
        if not os.path.samestat(os.fstat(dir_fd), os.fstat(place.dir_fd)):
            return None
        self._fd = None
        return fd

    def close(self) -> None:
        self._filling.result()
        self._drop()
        if self._place is not None:
            self._place.close()

    def _fill(self, find: Callable[[], Place], data: bytes) -> None:
        """What is wrong with any of it is found by whoever does it in earnest."""
        try:
            self._place = place = find()
            if place.missing or not _has_room(place.dir_fd, ROOM * len(data)):
                return
            point("write.open_temp")
            self._fd = unnamed.opened(place.dir_fd, mode_of(place.found is None))
            if self._fd is not None:
                point("write.temp_created")
                unnamed.fill(self._fd, data)
        except Exception:
            self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            close_quietly(self._fd)
            self._fd = None


def _has_room(dir_fd: int, size: int) -> bool:
    with suppress(OSError):
        free = os.fstatvfs(dir_fd)
        return free.f_bavail * free.f_frsize >= size
    return False
