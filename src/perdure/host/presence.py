"""Which hosts are running, and where each can be asked, for the commands that speak to them."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from perdure.storage.user_dirs import private_dir, state_dir, write_private

LONGEST_ADDRESS = 100  # a little below what the systems allow for the name of a socket
_FIELDS = ("pid", "session", "version", "workspace", "started", "ticks", "mounts", "kind", "workspaces")


class Presence:
    """What a host says when it starts. `ticks` is when its process began, by the system's count.

    `kind` is `run` for the host of one client, `serve` for one process with many sessions; `workspaces` are all of
    them, of which `workspace` is the first.
    """

    __slots__ = _FIELDS

    def __init__(
        self,
        pid: int,
        session: str,
        version: str,
        workspace: str,
        started: float,
        ticks: int,
        mounts: tuple[str, ...] = (),
        kind: str = "run",
        workspaces: tuple[str, ...] = (),
    ) -> None:
        self.pid = pid
        self.session = session
        self.version = version
        self.workspace = workspace
        self.started = started
        self.ticks = ticks
        self.mounts = tuple(mounts)
        self.kind = kind
        self.workspaces = tuple(workspaces) or (workspace,)

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Presence) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash((self.pid, self.ticks))

    def __repr__(self) -> str:
        return f"Presence({self.fields()})"


def announce(presence: Presence) -> None:
    write_private(os.path.join(folder(), _name(presence.pid)), msgspec.json.encode(presence.fields()))


def withdraw() -> None:
    _forget(os.getpid())


def running() -> list[Presence]:
    """Every live host of this user. What a dead one left behind is removed."""
    found: list[Presence] = []
    try:
        names = sorted(os.listdir(_place()))
    except OSError:
        return found  # there was never a host, or this is not ours to read
    for name in names:
        if not name.endswith(".json"):
            continue  # a socket, or one that is being written
        presence = _read(os.path.join(_place(), name))
        if presence is None:
            continue
        if start_ticks(presence.pid) == presence.ticks:
            found.append(presence)
        else:
            _forget(presence.pid)
    return found


def _read(path: str) -> Presence | None:
    try:
        with open(path, "rb") as file:
            known = msgspec.json.decode(file.read())
        found = Presence(**{name: known[name] for name in _FIELDS if name in known})
    except (OSError, ValueError, TypeError, msgspec.MsgspecError):
        return None
    kinds = (int, str, str, str, float, int, tuple, str, tuple)
    values = found.fields().values()
    if not all(isinstance(value, kind | int) for value, kind in zip(values, kinds, strict=True)):
        return None
    return found


def _forget(pid: int) -> None:
    for name in (_name(pid), socket_name(pid)):
        discard(os.path.join(_place(), name))


def discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


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


def folder() -> str:
    return private_dir("hosts")


def _place() -> str:
    """The same, not made: whoever only looks leaves nothing behind."""
    return os.path.join(state_dir(), "hosts")


def _name(pid: int) -> str:
    return f"{pid}.json"


def socket_name(pid: int) -> str:
    return f"{pid}.sock"


class reachable:
    """A folder under a name short enough for the address of a socket in it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) < LONGEST_ADDRESS - 20:
            return self._path
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
