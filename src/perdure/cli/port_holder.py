"""Which process listens at a port, for the message of one that wanted it."""

from __future__ import annotations

import os
from contextlib import suppress

from perdure.cli.asking import ask_all
from perdure.cli.screen import clean, home
from perdure.host import presence

LISTEN = "0A"


def holder_of(port: int) -> str:
    """A sentence's end, with what to do about another `perdure serve`."""
    for asked in ask_all([host for host in presence.running() if host.kind == "serve"]):
        if f":{port}/" in str((asked.report or {}).get("address", "")):
            place = home(clean(asked.presence.workspace))
            return f"perdure serve, pid {asked.presence.pid} ({place}). `perdure attach` joins it;"
    if (pid := _process_at(port)) is not None:
        return f"{_name(pid)}, pid {pid}."
    return "another program."


def _process_at(port: int) -> int | None:
    """From /proc; None where this system has none, or the process is another user's."""
    inodes = set(_listening_inodes(port))
    for name in filter(str.isdigit, _names("/proc")):
        for fd in _names(f"/proc/{name}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{name}/fd/{fd}") in inodes:
                    return int(name)
    return None


def _listening_inodes(port: int) -> list[str]:
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
            found += [
                f"socket:[{row[9]}]"
                for row in rows
                if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port
            ]
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return clean(file.read().strip())
    except OSError:
        return "a program"
