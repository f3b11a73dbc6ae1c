"""How children end: why one did, and ending all of them in good order."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time

from perdure.host.child import Child
from perdure.platform.guardian import Guardian
from perdure.platform.signals import Signals
from perdure.protocol.faults import Fault, printable

CLOSE_S = 1.0
PIPE_BYTES = 1 << 16


def end_all(children: dict[tuple[str, int], Child], guardian: Guardian, signals: Signals) -> None:
    """Children first get their end of input, then a signal, then no choice."""
    for child in children.values():
        child.close_input()
    for number in (0, signal.SIGTERM, signal.SIGKILL):
        if number:
            for child in children.values():
                child.signal(number)
        until = time.monotonic() + CLOSE_S
        while children and time.monotonic() < until:
            _discard_output(children, signals)
            for child in list(children.values()):
                if exit_status(child.pid) is not None:
                    child.signal(signal.SIGKILL)
                    guardian.forget(child.pid)
                    child.close()
                    del children[child.key]


def _discard_output(children: dict[tuple[str, int], Child], signals: Signals) -> None:
    fds = [c.stdout for c in children.values() if c.output_open]
    fds += [c.stderr for c in children.values() if c.stderr >= 0]
    readable, _, _ = select.select([signals.fd, *fds], [], [], 0.05)
    signals.take()
    for child in children.values():
        if child.output_open and child.stdout in readable:
            try:
                if not os.read(child.stdout, PIPE_BYTES):
                    child.close_output()
            except OSError:
                pass
        if child.stderr in readable and not child.read_stderr():
            child.close_stderr()


def exit_status(pid: int) -> int | None:
    """The status of a child that ended, or None while it runs."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return status if found else None


def pipe_size(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) if hasattr(fcntl, "F_GETPIPE_SZ") else PIPE_BYTES


def spawn_fault(generation: int, command: str, cwd: str, error: OSError) -> Fault:
    reason = error.strerror or "cannot be run"
    if cwd and error.filename == cwd:
        detail, hint = f"the folder {cwd}: {reason}", "check its cwd"
    else:
        detail, hint = f"{os.path.basename(command)}: {reason}", "check the command"
    return Fault("process", "spawn_failed", generation, printable(detail), hint)


def exit_fault(child: Child, status: int) -> Fault:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = str(number)
        return Fault("process", "killed", child.generation, f"ended by {name}")
    return Fault("process", "exited", child.generation, f"exit code {os.waitstatus_to_exitcode(status)}")
