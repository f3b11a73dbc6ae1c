"""Exclusive locks on open files and directories, between processes. The system releases the locks of a dead process.

A lock belongs to the open file: another descriptor of the same process waits for it like any other process.
"""

from __future__ import annotations

import fcntl
import os
import threading


def lock(fd: int) -> None:
    """Wait for the lock. The kernel serves waiters in order."""
    fcntl.flock(fd, fcntl.LOCK_EX)


def try_lock(fd: int) -> None:
    """Raises BlockingIOError if it is held, and another OSError where the file system has no locks."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_within(fd: int, seconds: float) -> bool:
    """Take the lock, or wait in the kernel's queue; False after a timeout, when the caller must close the descriptor.

    The system's call has no timeout, so a thread waits for it. To close the descriptor releases the lock if the
    thread still acquires it.
    """
    try:
        try_lock(fd)
        return True
    except BlockingIOError:
        pass
    waiter = threading.Thread(target=lock, args=(fd,), daemon=True)
    waiter.start()
    waiter.join(seconds)
    return not waiter.is_alive()


def unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


def holders(path: str) -> list[int]:
    """Processes that hold a lock on a file or directory; empty where the system does not tell."""
    try:
        facts = os.stat(path)
        with open("/proc/locks") as file:
            rows = [line.split() for line in file if "->" not in line]
    except OSError:
        return []
    place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
    return [int(row[4]) for row in rows if len(row) > 5 and row[5] == place and int(row[4]) > 0]
