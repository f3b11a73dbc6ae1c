"""Which process listens at a port, for the message of one that wanted it."""

from __future__ import annotations

from perdure.cli.asking import ask_all
from perdure.cli.screen import clean, home
from perdure.host import presence
from perdure.platform.processes import listening_at, name_of


def holder_of(port: int) -> str:
    """A sentence's end, with what to do about another `perdure serve`."""
    for asked in ask_all([host for host in presence.running() if host.kind == "serve"]):
        if f":{port}/" in str((asked.report or {}).get("address", "")):
            place = home(clean(asked.presence.workspace))
            return f"perdure serve, pid {asked.presence.pid} ({place}). `perdure attach` joins it;"
    if (pid := listening_at(port)) is not None:
        return f"{clean(name_of(pid) or 'a program')}, pid {pid}."
    return "another program."
