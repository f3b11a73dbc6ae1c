"""A client for the status sockets of running hosts: all are queried at once, with one deadline.

A host that hangs, or has no socket, is shown by what it announced when it started.
"""

from __future__ import annotations

import os
import time
from json import loads
from socket import socket
from typing import Any

from perdure.cli.output import clean, home
from perdure.host import presence
from perdure.host.presence import Presence
from perdure.platform import sockets
from perdure.platform.polling import READABLE, new_poll
from perdure.platform.processes import listening_at, name_of

PATIENCE_S = 1.0
MOST_BYTES = 4 * 1024 * 1024
TRIES = 3
PAUSE_S = 0.05


class HostStatus:
    """One host and its report; `no_answer_reason` says why there is none."""

    __slots__ = ("no_answer_reason", "presence", "report")

    def __init__(self, known: Presence, report: dict[str, Any] | None, no_answer_reason: str = "") -> None:
        self.presence = known
        self.report = report
        self.no_answer_reason = no_answer_reason

    def fields(self) -> dict[str, Any]:
        found = {**self.presence.fields(), "answers": self.report is not None}
        if self.report is not None:
            return {**found, "report": self.report}
        return {**found, "silence": self.no_answer_reason}


def query_hosts(hosts: list[Presence], seconds: float = PATIENCE_S) -> list[HostStatus]:
    """The status of every host, in their order. A host that is just replacing itself is queried again."""
    until = time.monotonic() + seconds
    found = _round(hosts, until)
    for _ in range(TRIES - 1):
        again = [pid for pid, one in found.items() if one.no_answer_reason == "no_socket"]
        if not again or time.monotonic() + PAUSE_S > until:
            break
        if not any(os.path.lexists(_address(pid)) for pid in again):
            break  # hosts from before there was one
        time.sleep(PAUSE_S)
        found |= _round([host for host in hosts if host.pid in again], until)
    return [found[host.pid] for host in hosts]


def _address(pid: int) -> str:
    return os.path.join(presence.folder(), presence.socket_name(pid))


def _round(hosts: list[Presence], until: float) -> dict[int, HostStatus]:
    found: dict[int, HostStatus] = {}
    poll = new_poll()
    open_: dict[int, tuple[Presence, socket, list[bytes]]] = {}
    for host in hosts:
        asked = _connect(host.pid)
        if isinstance(asked, str):
            found[host.pid] = HostStatus(host, None, asked)
            continue
        open_[asked.fileno()] = (host, asked, [])
        poll.register(asked.fileno(), READABLE)
    while open_ and (left := until - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            host, asked, parts = open_[fd]
            try:
                data = asked.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            parts.append(data)
            if not data or sum(map(len, parts)) > MOST_BYTES:
                poll.unregister(fd)
                asked.close()
                del open_[fd]
                found[host.pid] = _parse(host, b"".join(parts))
    for host, asked, _ in open_.values():
        asked.close()
        found[host.pid] = HostStatus(host, None, "no_answer")
    return found


def _connect(pid: int) -> socket | str:
    made = sockets.new_local()
    made.setblocking(False)
    try:
        sockets.connect(made, _address(pid))
    except BlockingIOError:
        made.close()
        return "no_answer"  # so many ask already that it cannot even be asked
    except OSError:
        made.close()
        return "no_socket"
    return made


def _parse(host: Presence, answer: bytes) -> HostStatus:
    try:
        report = loads(answer)
    except ValueError:
        return HostStatus(host, None, "no_socket" if not answer else "not_understood")
    if not isinstance(report, dict) or "health" not in report:
        return HostStatus(host, None, "not_understood")
    return HostStatus(host, report)


def port_holder(port: int) -> str:
    """The process that listens at a port, for an error message; with what to do about another `perdure serve`."""
    for status in query_hosts([host for host in presence.running() if host.kind == "serve"]):
        if f":{port}/" in str((status.report or {}).get("address", "")):
            place = home(clean(status.presence.workspace))
            return f"perdure serve, pid {status.presence.pid} ({place}). `perdure attach` joins it;"
    if (pid := listening_at(port)) is not None:
        return f"{clean(name_of(pid) or 'a program')}, pid {pid}."
    return "another program."
