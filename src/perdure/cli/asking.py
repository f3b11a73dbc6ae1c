"""Asking running hosts how they are: all at once, never longer than a moment.

A host that hangs, or is older than the socket, is shown by what it said when it started.
"""

from __future__ import annotations

import os
import time
from json import loads
from socket import socket
from typing import Any

from perdure.host import presence
from perdure.host.presence import Presence
from perdure.platform import sockets
from perdure.platform.polling import READABLE, new_poll

PATIENCE_S = 1.0
MOST_BYTES = 4 * 1024 * 1024
TRIES = 3
PAUSE_S = 0.05


class Asked:
    """One host, and what it answered; `silence` says why there is no report."""

    __slots__ = ("presence", "report", "silence")

    def __init__(self, known: Presence, report: dict[str, Any] | None, silence: str = "") -> None:
        self.presence = known
        self.report = report
        self.silence = silence

    def fields(self) -> dict[str, Any]:
        found = {**self.presence.fields(), "answers": self.report is not None}
        if self.report is not None:
            return {**found, "report": self.report}
        return {**found, "silence": self.silence}


def ask_all(hosts: list[Presence], seconds: float = PATIENCE_S) -> list[Asked]:
    """Every host's answer, in their order. One that is just replacing itself is asked again."""
    until = time.monotonic() + seconds
    found = _round(hosts, until)
    for _ in range(TRIES - 1):
        again = [pid for pid, one in found.items() if one.silence == "no_socket"]
        if not again or time.monotonic() + PAUSE_S > until:
            break
        if not any(os.path.lexists(_address(pid)) for pid in again):
            break  # hosts from before there was one
        time.sleep(PAUSE_S)
        found |= _round([host for host in hosts if host.pid in again], until)
    return [found[host.pid] for host in hosts]


def _address(pid: int) -> str:
    return os.path.join(presence.folder(), presence.socket_name(pid))


def _round(hosts: list[Presence], until: float) -> dict[int, Asked]:
    found: dict[int, Asked] = {}
    poll = new_poll()
    open_: dict[int, tuple[Presence, socket, list[bytes]]] = {}
    for host in hosts:
        asked = _connected(host.pid)
        if isinstance(asked, str):
            found[host.pid] = Asked(host, None, asked)
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
                found[host.pid] = _understood(host, b"".join(parts))
    for host, asked, _ in open_.values():
        asked.close()
        found[host.pid] = Asked(host, None, "no_answer")
    return found


def _connected(pid: int) -> socket | str:
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


def _understood(host: Presence, answer: bytes) -> Asked:
    try:
        report = loads(answer)
    except ValueError:
        return Asked(host, None, "no_socket" if not answer else "not_understood")
    if not isinstance(report, dict) or "health" not in report:
        return Asked(host, None, "not_understood")
    return Asked(host, report)
