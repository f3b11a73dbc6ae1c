"""Processes of this machine: whether one runs, since when, and what the system tells about it."""

from __future__ import annotations

import os
from typing import Final

_EXITING: Final = 0x4
_LISTEN: Final = "0A"
_ESTABLISHED: Final = "01"
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


def name_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def with_environment(entry: str) -> list[int]:
    """Processes that were started with this `NAME=VALUE`; empty where the system does not tell."""
    wanted = entry.encode()
    pids = []
    for name in _names("/proc") if _PROC else ():
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    pids.append(int(name))
        except (OSError, ValueError):
            continue
    return pids


def listening_at(port: int) -> int | None:
    """The process that listens at a TCP port; None where the system does not tell, or it is another user's."""
    return _owner_of(_socket_inodes(port, _LISTEN))


def connected_from(port: int) -> int | None:
    """The process of this machine whose TCP connection has this local port; None as for `listening_at`."""
    return _owner_of(_socket_inodes(port, _ESTABLISHED))


def _owner_of(inodes: list[str]) -> int | None:
    if not inodes:
        return None
    for name in filter(str.isdigit, _names("/proc")):
        for fd in _names(f"/proc/{name}/fd"):
            try:
                if os.readlink(f"/proc/{name}/fd/{fd}") in inodes:
                    return int(name)
            except OSError:
                continue
    return None


def _socket_inodes(port: int, state: str) -> list[str]:
    inodes = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        inodes += [
            f"socket:[{row[9]}]"
            for row in rows
            if row[3] == state and int(row[1].rpartition(":")[2], 16) == port
        ]
    return inodes


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
