"""Which hosts are running, and where each can be asked, for the commands that speak to them."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from perdure.platform.processes import start_time
from perdure.storage.user_dirs import private_dir, state_dir, write_private

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
        if start_time(presence.pid) == presence.ticks:
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


def folder() -> str:
    return private_dir("hosts")


def _place() -> str:
    """The same, not made: whoever only looks leaves nothing behind."""
    return os.path.join(state_dir(), "hosts")


def _name(pid: int) -> str:
    return f"{pid}.json"


def socket_name(pid: int) -> str:
    return f"{pid}.sock"
