"""A worker alone, forked from a process that has everything imported: as `perdure worker`, without its start.

It is a real process and dies a real death, at a tenth of the cost. The session does for it what the host does:
it gives every call a key, and asks a successor what became of the call.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import random
import signal
import time
import traceback
from typing import Final, NoReturn

from harness.crash.calls import Call
from harness.crash.hosted import GONE_S, HANDSHAKE
from harness.crash.place import Place
from harness.crash.plan import Victim
from harness.crash.wire import Wire
from perdure.cli import worker as command
from perdure.platform import fault_points
from perdure.protocol import eras

_WANTED: Final = (
    *("perdure.cli.options", "perdure.worker.server", "perdure.worker.compose", "perdure.storage.user_dirs"),
    *("perdure.workspace.workspace", "perdure.surfaces.write.surface", "perdure.storage.sqlite.journal"),
    "json",
)


class Bare:
    """One life of a worker."""

    def __init__(self, place: Place, faults: str) -> None:
        for name in _WANTED:
            importlib.import_module(name)
        child_in, ours_out = os.pipe()
        ours_in, child_out = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(place, faults, child_in, child_out)
        os.close(child_in)
        os.close(child_out)
        self.wire = Wire(ours_in, ours_out)
        self.wire.request("hello", "initialize", HANDSHAKE)

    def call(self, call: Call, session: str = "bare") -> None:
        meta = {eras.META_INVOCATION: key(call), eras.META_CALLER: {"name": "bare", "session": session}}
        params = {"name": call.tool, "arguments": call.arguments, "_meta": meta}
        self.wire.request(call.number, "tools/call", params)

    def probe(self, call: Call) -> None:
        params = {"key": key(call), "tool": call.tool}
        self.wire.request(f"probe {call.number}", eras.PROBE_METHOD, params)

    def worker(self) -> int | None:
        return self._pid

    def kill(self, victim: Victim, worker: int | None, chance: random.Random) -> bool:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        return True

    def close(self) -> None:
        self.wire.close()

    def leave(self) -> int | None:
        """Close its input; its exit code, or None where it stays and had to be killed."""
        self.wire.close_input()
        until = time.monotonic() + GONE_S
        while time.monotonic() < until:
            found, status = os.waitpid(self._pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
        self.kill("bare", None, random.Random())
        return None


def key(call: Call) -> str:
    return f"bare.{call.number}"


def _serve(place: Place, faults: str, stdin: int, stdout: int) -> NoReturn:
    try:
        for fd, number in ((stdin, 0), (stdout, 1), (place.open_log(), 2)):
            os.dup2(fd, number)
        os.closerange(3, 4096)
        faulthandler.enable()
        os.environ["PERDURE_HOME"] = str(place.home)
        fault_points.arm(faults)
        os._exit(command.main(place.options))
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)
