"""Which hosts are running, for the commands that speak to them."""

from __future__ import annotations

import os

import msgspec

from perdure.storage.places import private_dir, write_private


class Presence(msgspec.Struct, frozen=True):
    pid: int
    session: str
    version: str
    workspace: str
    started: float
    ticks: int
    mounts: tuple[str, ...] = ()


def announce(presence: Presence) -> None:
    write_private(_path(presence.pid), msgspec.json.encode(presence))


def withdraw() -> None:
    try:
        os.unlink(_path(os.getpid()))
    except OSError:
        pass


def running() -> list[Presence]:
    """Every live host of this user. What a dead one left behind is removed."""
    found: list[Presence] = []
    folder = private_dir("hosts")
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue  # one that is being written
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                presence = msgspec.json.decode(file.read(), type=Presence)
        except (OSError, msgspec.MsgspecError):
            continue
        if start_ticks(presence.pid) == presence.ticks:
            found.append(presence)
        else:
            try:
                os.unlink(path)
            except OSError:
                pass
    return found


def start_ticks(pid: int) -> int:
    """When a process began, so that a number used again is not taken for it; 0 where it is not running."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except FileNotFoundError:
        return 0 if os.path.isdir("/proc/self") else _alive(pid)
    except (OSError, ValueError, IndexError):
        return 0


def _alive(pid: int) -> int:
    try:
        os.kill(pid, 0)
    except OSError:
        return 0
    return 1


def _path(pid: int) -> str:
    return os.path.join(private_dir("hosts"), f"{pid}.json")
