"""Processes of this machine: whether one runs, since when, and what the system tells about it."""

from __future__ import annotations

import os
from typing import Final

_EXITING: Final = 0x4
_PROC: Final = os.path.isdir("/proc/self")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def start_time(pid: int) -> int:
    """When a process started, in ticks since boot; 0 for none and for one that is dying.

    With it a process id that is used again is told from its earlier owner. Where the system does not tell, 1 stands
    for a process that runs.
    """
    if not _PROC:
        return int(is_running(pid))
    try:
        fields = _stat(pid)
        # A killed process is listed until its parent waits for it, which in some containers never happens.
        is_gone = fields[0] in (b"Z", b"X") or int(fields[6]) & _EXITING
        return 0 if is_gone else int(fields[19])
    except (OSError, ValueError, IndexError):
        return 0


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has suspended a process."""
    try:
        return _stat(pid)[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def pid_namespace() -> int:
    """Process ids have a meaning only in this namespace; 0 where the system has none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _stat(pid: int) -> list[bytes]:
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The command name may hold spaces and parentheses; the fields after it do not.
        return file.read().rpartition(b")")[2].split()
