"""A small process that outlives the host just long enough to leave no orphan behind.

`kill -9` of the host runs none of its code, so somebody else must know its children. The guardian is
forked before anything is started, holds the other end of a pipe, and is told every process group as it
comes (by the new child itself, before it runs anything) and goes. When the pipe ends, the host is
dead: it terminates, then kills, what is left.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

GRACE_S = 0.5


class Guardian:
    """The host's end: groups are announced by writing to `fd`."""

    def __init__(self, fd: int, pid: int) -> None:
        self.fd = fd
        self.pid = pid

    @classmethod
    def start(cls) -> Guardian:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _watch(reading)
        os.close(reading)
        return cls(writing, pid)

    def forget(self, group: int) -> None:
        self._say(b"-%d\n" % group)

    def remember(self, group: int) -> None:
        self._say(b"+%d\n" % group)

    def _say(self, words: bytes) -> None:
        try:
            os.write(self.fd, words)
        except OSError:
            pass  # it died; the host notices by its exit and starts another

    def close(self) -> None:
        """End it in good order. Nothing is registered any more, so it kills nothing."""
        os.close(self.fd)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass


def _watch(reading: int) -> NoReturn:
    """Everything the guardian ever does. It never returns into the host's code."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (int(name) for name in os.listdir("/dev/fd")):
            if fd not in (2, reading):
                try:
                    os.close(fd)
                except OSError:
                    pass
        groups: set[int] = set()
        rest = b""
        while data := os.read(reading, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                group = int(line[1:])
                if line[:1] == b"+":
                    groups.add(group)
                else:
                    groups.discard(group)
        _end(groups)
    finally:
        os._exit(0)


def _end(groups: set[int]) -> None:
    for group in groups:
        signal_group(group, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while any(signal_group(group, 0) for group in groups) and time.monotonic() < until:
        time.sleep(0.01)
    for group in groups:
        signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: int) -> bool:
    """Whether anyone was there to hear it."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True
