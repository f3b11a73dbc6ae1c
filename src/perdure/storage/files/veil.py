"""A file that nobody can open until it is known to be right: who comes too early waits, and gets what is right.

Two files change places before anybody can look at what came out. Should that be somebody's newer content, then ours
stands at the name by mistake until they change back, and a program that reads it then and writes it back later takes
the newer content away for good. A write lease on ours (Linux) lets every opening of it wait meanwhile; before they
go on, ours is given the content that should have been there, which they take for the file they asked for.

The kernel lets them go on by itself after a while (`/proc/sys/fs/lease-break-time`, 45 s), and at once if we are killed.
Where there are no leases nothing is veiled, and whoever wrote with care has to look after what was shown by mistake.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from typing import Final, Literal

from perdure.model.fault_points import point
from perdure.storage.durable import write_all

Waiting = Literal["nobody", "reader", "writer"]
_READS: Final = 1 << 20


class Veil:
    """Over a file of ours that only this descriptor, open for reading and writing, has open."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.is_drawn = _leased(fd)
        self.has_shown = not self.is_drawn  # whether somebody may have seen what is beneath it

    def lift(self, right: int | None) -> Waiting:
        """Let go who waits, with the content of `right` where that is a file. Returns who did.

        The descriptor can only read from then on, so that it can be asked who else writes.
        """
        if not self.is_drawn:
            return "nobody"
        self.is_drawn = False
        waiting = self._waiting()
        if waiting != "nobody":
            self.has_shown = right is None or not _is_rewritten(self._fd, right)
        fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        become_reader(self._fd)
        return waiting

    def _waiting(self) -> Waiting:
        """What the kernel asks us to make of the lease says what those who wait want."""
        match fcntl.fcntl(self._fd, fcntl.F_GETLEASE):
            case fcntl.F_WRLCK:
                return "nobody"
            case fcntl.F_RDLCK:
                return "reader"
            case _:
                return "writer"


def become_reader(fd: int) -> None:
    """The same number for the same file, open for reading alone."""
    try:
        reading = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # a umask that forbids reading one's own files
    os.dup2(reading, fd, inheritable=False)
    os.close(reading)


def _leased(fd: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        point("veil.draw")
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # ignored by default, as the usual one is not
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError:
        return False
    return True


def _is_rewritten(fd: int, right: int) -> bool:
    """Whether a file holds the content of another one now; if not, it is as it was."""
    pieces, size = [], 0
    try:
        while piece := os.pread(right, _READS, size):
            pieces.append(piece)
            size += len(piece)
        point("veil.rewrite")
        os.posix_fallocate(fd, 0, max(size, 1))  # so that a full disk leaves no mixture of the two
        os.lseek(fd, 0, os.SEEK_SET)
        whole = b"".join(pieces)
        write_all(fd, whole, "veil.chunk")
        os.ftruncate(fd, size)
    except OSError:
        return False
    return True
