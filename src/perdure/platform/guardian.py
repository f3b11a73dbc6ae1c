"""A small process that outlives the host just long enough to leave no orphan behind.

`kill -9` of the host runs none of its code, so another process must know its children. The guardian is
forked before anything is started, holds the other end of a pipe, and is told every process group as it
comes and goes. When the pipe ends, the host is dead: it terminates, then kills, what is left. Every child
also carries a mark in its environment, by which those are found that were started in the host's last
moment, or have left their group.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

from perdure.platform import processes, signals
from perdure.platform.children import exit_status, kill_group, signal_group, terminate_group

GRACE_S = 0.5
MARK = "PERDURE_GUARDED"


class Guardian:
    """The host's end: groups are announced by writing to `fd`; children are started with `mark`."""

    def __init__(self, fd: int, pid: int, mark: str) -> None:
        self.fd = fd
        self.pid = pid
        self.mark = mark

    @classmethod
    def start(cls, mark: str | None = None) -> Guardian:
        mark = mark or os.urandom(12).hex()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _watch(reading, mark)
        os.close(reading)
        return cls(writing, pid, mark)

    def forget(self, group: int) -> None:
        self._say(b"-%d\n" % group)

    def remember(self, group: int) -> None:
        self._say(b"+%d\n" % group)

    def _say(self, words: bytes) -> None:
        try:
            os.write(self.fd, words)
        except OSError:
            pass  # it died; the host notices by its exit and starts another

    def has_ended(self) -> bool:
        return exit_status(self.pid) is not None

    def abandon(self) -> None:
        """It has ended, and another took its place."""
        os.close(self.fd)

    def close(self) -> None:
        """End it in good order. Nothing is registered any more, so it kills nothing."""
        os.close(self.fd)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass


def _watch(reading: int, mark: str) -> NoReturn:
    """Everything the guardian ever does. It never returns into the host's code."""
    try:
        os.setsid()
        signals.ignore((signals.TERMINATE, signals.INTERRUPT, signals.RELOAD, signals.UPGRADE))
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
        _end(groups, mark)
    finally:
        os._exit(0)


def _end(groups: set[int], mark: str) -> None:
    for group in groups:
        terminate_group(group)
    until = time.monotonic() + GRACE_S
    while any(signal_group(group, 0) for group in groups) and time.monotonic() < until:
        time.sleep(0.01)
    for group in groups:
        kill_group(group)
    end_marked(mark)


def end_marked(mark: str, patience_s: float = 0.0) -> None:
    """End whatever still carries a mark, and wait until it is gone, or for so long."""
    until = time.monotonic() + patience_s
    while pids := processes.with_environment(f"{MARK}={mark}"):
        for pid in pids:
            try:
                signals.send(pid, signals.KILL)
            except OSError:
                pass
        if time.monotonic() >= until:
            break
        time.sleep(0.01)
