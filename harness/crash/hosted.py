"""A host with its worker, as a client starts them; and killing either, or both, as nothing in them can prevent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from typing import Final

from harness.crash.calls import Call
from harness.crash.place import Place
from harness.crash.plan import Victim
from harness.crash.wire import Wire
from harness.processes import is_running, marked

GONE_S: Final = 5.0
HANDSHAKE: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "write-storm", "version": "1.0.0"},
}


class Hosted:
    """One life of a host. `mark` is in the environment of everything it starts."""

    def __init__(self, place: Place, faults: str, mark: str) -> None:
        self.mark = mark
        log = place.open_log()
        self._process = subprocess.Popen(
            place.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=place.environ(faults, mark),
        )
        os.close(log)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.wire = Wire(os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno()))
        self._process.stdin.close()
        self._process.stdout.close()
        self.wire.request("hello", "initialize", HANDSHAKE)
        self.wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, call: Call) -> None:
        self.wire.request(call.number, "tools/call", {"name": call.tool, "arguments": call.arguments})

    def worker(self) -> int | None:
        """The pid of the worker that runs now."""
        children = [pid for pid in marked(self.mark) if _parent(pid) == self._process.pid]
        return next((pid for pid in children if b"worker" in _words(pid)), None)

    def kill(self, victim: Victim, worker: int | None, chance: random.Random) -> bool:
        """SIGKILL. Whether anybody was there to be killed."""
        pids = [worker] if victim == "worker" else [self._process.pid]
        if victim == "both":
            pids += [worker]
            if chance.random() < 0.3:
                pids += marked(self.mark)  # its guardian too
            chance.shuffle(pids)
        killed = [_killed(pid) for pid in pids if pid is not None]
        if victim != "worker":
            self._process.wait()
        return any(killed) if victim == "worker" else bool(killed)

    def close(self) -> None:
        self.wire.close()

    def leave(self) -> int | None:
        """Close its input; its exit code, or None where it stays and had to be killed."""
        self.wire.close_input()
        try:
            return self._process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None


def outlived(mark: str, killed_at: float) -> list[int]:
    """What is still there so long after everything with this mark should be gone."""
    until = killed_at + GONE_S
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _killed(pid: int) -> bool:
    if not is_running(pid):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _words(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
