"""A large content put into a file while it arrives or is being kept, before it is decided that there will be such a file.

What stands at its path, and where that leads, is known for sure only under the lock. So the file has no name yet: whoever
plans the change takes it if the plan leads to the same directory; if not, it is gone without a trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from perdure.model.fault_points import point
from perdure.storage.direct import DirectFile
from perdure.storage.durable import close_quietly
from perdure.storage.files import unnamed
from perdure.storage.files.pending import mode_of
from perdure.storage.following import Follower
from perdure.surfaces.write.confine import Place

ROOM: Final = 4
"""How many times its size must be free, so that it takes no room from what is kept."""


class Beforehand:
    """`find` tells where it shall stand; it has at most `most` bytes. Closed when its call is over."""

    def __init__(self, find: Callable[[], Place], most: int) -> None:
        self._find: Callable[[], Place] | None = find
        self._most = most
        self._place: Place | None = None
        self._file: DirectFile | None = None
        self._size = 0
        self._filling = Follower(self._fill, self._drop)

    def reach(self, beginning: memoryview) -> None:
        """So much of it is there: in aligned memory."""
        self._filling.reach(beginning)

    def end(self) -> None:
        """No more will come."""
        self._filling.end()

    def take(self, dir_fd: int, *, is_new: bool) -> int | None:
        """The file, once, for whoever puts this content into this directory. None where there is none for that."""
        self._filling.result()
        file, place = self._file, self._place
        if file is None or place is None or (place.found is None) != is_new:
            return None
        if not os.path.samestat(os.fstat(dir_fd), os.fstat(place.dir_fd)):
            return None
        self._file = None
        file.end()
        return file.fd

    def close(self) -> None:
        """Nobody needs it any more."""
        self._filling.close()

    def _fill(self, beginning: memoryview) -> None:
        """What is wrong with any of it is found by whoever does it in earnest."""
        try:
            if (find := self._find) is not None:
                self._find = None
                self._open(find())
            if self._file is not None:
                self._file.write(beginning[self._size :])
                self._size = len(beginning)
        except Exception:
            self._give_up()

    def _open(self, place: Place) -> None:
        self._place = place
        if place.missing or not _has_room(place.dir_fd, ROOM * self._most):
            return
        point("write.open_temp")
        fd = unnamed.opened(place.dir_fd, mode_of(place.found is None))
        if fd is not None:
            self._file = DirectFile(fd, "write.chunk")
            point("write.temp_created")

    def _drop(self) -> None:
        self._give_up()
        if self._place is not None:
            self._place.close()

    def _give_up(self) -> None:
        if self._file is not None:
            close_quietly(self._file.fd)
            self._file = None


def _has_room(dir_fd: int, size: int) -> bool:
    with suppress(OSError):
        free = os.fstatvfs(dir_fd)
        return free.f_bavail * free.f_frsize >= size
    return False
