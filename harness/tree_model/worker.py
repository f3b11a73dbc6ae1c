"""The write surface in a process of its own, which can be killed at any fault point and started again.

It is forked from the caller, which must have no threads, and answers over a pair of sockets.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from harness.store_location import store_of
from harness.tree_model.answers import Request
from harness.tree_model.inside import ALL, Command, Inside, Look, Reply, forked, received, send

HANGS_S: Final = 60.0
POLL_S: Final = 0.0003


class Worker:
    """One workspace after another, always at the same place. `None` as an answer: it was killed before it gave one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.workspace = os.path.join(folder, "workspace")
        self._pid = 0
        self._pipe: socket.socket | None = None
        self._home = os.environ["PERDURE_HOME"] = os.path.join(folder, "home")
        self._inside = Inside(self.workspace)
        self.reset()
        self._inside.warm()

    def reset(self) -> None:
        """An empty workspace, and nothing left of the one before."""
        self.kill()
        for name in os.listdir(self._folder):
            shutil.rmtree(os.path.join(self._folder, name))
        os.mkdir(self.workspace)

    def start(self, fault: str = "") -> bool:
        """Whether it opened the workspace: armed with a fault it may die while it recovers."""
        ours, theirs = socket.socketpair()
        ours.settimeout(HANGS_S)

        def life() -> None:
            ours.close()
            self._inside.serve(theirs, fault)

        self._pid, self._pipe = forked(life), ours
        theirs.close()
        return self._receive() is not None

    def visited(self) -> None:
        """Another process opens the workspace and leaves again, while this one goes on."""
        _, status = os.waitpid(forked(self._inside.visit), 0)
        assert status == 0, f"a second worker ended with status {status}"

    def call(self, request: Request, key: str, fault: str = "") -> Reply | None:
        found = self._ask(Command("call", request, key, fault))
        return None if found is None else msgspec.convert(found, Reply)

    def call_paused(self, request: Request, key: str, moment: str, meddle: Callable[[], None]) -> Reply:
        """A call during which something happens, if it ever comes to this moment, a point and a count."""
        assert self._pipe is not None
        waiting = os.path.join(self._folder, "home", "waiting")
        point, _, count = moment.partition("@")
        send(self._pipe, Command("call", request, key, f"{point}=pause:{waiting}@{count}"))
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until and not select.select([self._pipe], [], [], POLL_S)[0]:
            if os.path.exists(waiting):
                meddle()
                os.unlink(waiting)
                break
        return msgspec.convert(self._receive(), Reply)

    def look(self, rows: int = ALL) -> Look:
        """The journal's latest rows with their contents, or all of it and its chain."""
        return msgspec.convert(self._answer(Command("look", number=rows)), Look)

    def probe(self, key: str) -> dict[str, Any] | None:
        """What a lost call answered; None: it never happened."""
        found: dict[str, Any] | None = self._answer(Command("probe", key=key))[0]
        return found

    def made(self, seq: int) -> bytes | None:
        """The content that the latest undo of this change made."""
        found: bytes | None = self._answer(Command("made", number=seq))[0]
        return found

    def settle(self) -> None:
        self._answer(Command("settle"))

    def draft(self, identity: str) -> bytes | None:
        found: bytes | None = self._answer(Command("draft", key=identity))[0]
        return found

    def applied_watermark(self) -> int:
        """Up to which row everything is known to have landed, by the mark that a killed process leaves."""
        with open(store_of(self.workspace, self._home) / "landed") as file:
            return int(file.read().partition(" ")[2] or 0)

    def close(self) -> None:
        """As it ends when it is asked to."""
        self._answer(Command("close"))
        self.kill()

    def kill(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _answer(self, command: Command) -> Any:
        found = self._ask(command)
        if found is None:
            raise AssertionError(f"the worker was killed during {command.name}")
        return found

    def _ask(self, command: Command) -> Any:
        assert self._pipe is not None
        send(self._pipe, command)
        return self._receive()

    def _receive(self) -> Any:
        """None where it was killed. An end of any other kind is a failure of its own."""
        assert self._pipe is not None
        data = received(self._pipe)
        if data:
            return msgspec.msgpack.decode(data)
        status = self._reap()
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise AssertionError(f"the worker ended by itself, status {status}")
        return None

    def _reap(self) -> int:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        return status
