"""A lock between processes: flock, taken in the order it was asked for, and never waited for too long.

SQLite's own busy handler sleeps and tries again, so a newcomer may pass those who wait; the kernel's queue is fair.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final

from perdure.platform import directories
from perdure.platform.locks import lock, try_lock, unlock
from perdure.storage.errors import LockTimeout
from perdure.storage.files.file_io import close_quietly

_UNSUPPORTED: Final = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


LOCK_S: Final = 30.0
"""How long a writer waits for the lock of a workspace: longer than any round takes, shorter than a call may."""


class ProcessLock:
    """One holder at a time, in this process and among all others. `open_file` gives the descriptor to lock."""

    def __init__(self, open_file: Callable[[], int]) -> None:
        self._open_file = open_file
        self._fd = -1
        self._waiter: threading.Thread | None = None
        self._arrived = threading.Condition()
        self._is_wanted = False
        self._is_held = False
        self._is_closed = False

    def take(self, seconds: float) -> None:
        """Raises LockTimeout where the lock is not free in time, and OSError where it cannot be asked for."""
        with self._arrived:
            if self._fd < 0:
                self._fd = self._open_file()
            if self._waiter is None:
                try:
                    try_lock(self._fd)
                    return
                except BlockingIOError:
                    # A thread waits in the kernel's queue, since that wait has no bound of its own.
                    self._waiter = threading.Thread(target=self._queue, name="process-lock", daemon=True)
                    self._waiter.start()
            self._is_wanted = True
            came = self._arrived.wait_for(lambda: self._is_held, seconds)
            self._is_wanted = False
            if not came:
                raise LockTimeout
            self._is_held = False

    def give(self) -> None:
        """What was done stays done, whatever becomes of the lock: it goes with its descriptor at the latest."""
        try:
            unlock(self._fd)
        except OSError:
            close_quietly(self._fd)
            self._fd = -1

    def reopen(self) -> None:
        """Lock another file from now on. The caller does not hold the lock."""
        with self._arrived:
            if self._waiter is None and self._fd >= 0:
                close_quietly(self._fd)
            self._fd = -1
            self._waiter = None

    def leads_to(self, path: str) -> bool:
        """Whether the file of this name is the one that is locked."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        with self._arrived:
            if self._waiter is None and not self._is_closed and self._fd >= 0:
                os.close(self._fd)
            self._is_closed = True

    def _queue(self) -> None:
        fd = self._fd
        lock(fd)
        with self._arrived:
            if self._fd != fd:
                os.close(fd)  # another file is locked meanwhile
                return
            self._waiter = None
            if self._is_wanted:
                self._is_held = True
                self._arrived.notify_all()
            else:
                unlock(fd)  # the caller gave up meanwhile


class DirectoryLock:
    """A lock on a directory itself: the same one for all processes, whatever path, container or user each has.

    A directory that may not be read, or a file system without such locks, has none.
    """

    def __init__(self, dir_fd: int) -> None:
        """`dir_fd` may be a descriptor that only holds a place (O_PATH)."""
        flags = os.O_RDONLY | directories.DIRECTORY
        self._lock: ProcessLock | None = ProcessLock(lambda: directories.open(".", flags, dir_fd=dir_fd))
        self.identity = _identity(dir_fd)
        self._has_worked = False

    def take(self, seconds: float) -> None:
        if self._lock is None:
            return
        try:
            self._lock.take(seconds)
        except OSError as error:
            if self._has_worked or not (isinstance(error, PermissionError) or error.errno in _UNSUPPORTED):
                raise
            self._lock.close()
            self._lock = None
        else:
            self._has_worked = True
            _locked_here.add(self.identity)

    def give(self) -> None:
        if self._lock is not None:
            _locked_here.discard(self.identity)
            self._lock.give()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


_locked_here: Final[set[tuple[int, int]]] = set()
"""Directories that this process has locked: another descriptor of the same process would wait for it for ever."""


def is_locked_here(dir_fd: int) -> bool:
    """Whether this process holds the lock of this directory."""
    return _identity(dir_fd) in _locked_here


def _identity(fd: int) -> tuple[int, int]:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


def open_lock_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | directories.NOFOLLOW, 0o600)
