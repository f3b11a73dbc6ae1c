"""How children end: why one did, and ending all of them in good order."""

from __future__ import annotations

import os
import time

from perdure.platform import signals
from perdure.platform.children import ending_signal, exit_status
from perdure.platform.guardian import Guardian
from perdure.platform.polling import wait_readable
from perdure.platform.signals import SignalPipe
from perdure.protocol.faults import Fault, printable
from perdure.supervise.child import Child

CLOSE_S = 1.0
PIPE_BYTES = 1 << 16


def end_all(children: dict[tuple[str, int], Child], guardian: Guardian, signal_pipe: SignalPipe) -> None:
    """Children first get their end of input, then a signal, then no choice."""
    for child in children.values():
        child.close_input()
    for number in (0, signals.TERMINATE, signals.KILL):
        if number:
            for child in children.values():
                child.signal(number)
        until = time.monotonic() + CLOSE_S
        while children and time.monotonic() < until:
            _discard_output(children, signal_pipe)
            for child in list(children.values()):
                if exit_status(child.pid) is not None:
                    child.signal(signals.KILL)
                    guardian.forget(child.pid)
                    child.close()
                    del children[child.key]


def _discard_output(children: dict[tuple[str, int], Child], signal_pipe: SignalPipe) -> None:
    fds = [c.stdout for c in children.values() if c.output_open]
    fds += [c.stderr for c in children.values() if c.stderr >= 0]
    readable = wait_readable([signal_pipe.fd, *fds], 0.05)
    signal_pipe.take()
    for child in children.values():
        if child.output_open and child.stdout in readable:
            try:
                if not os.read(child.stdout, PIPE_BYTES):
                    child.close_output()
            except OSError:
                pass
        if child.stderr in readable and not child.read_stderr():
            child.close_stderr()


def spawn_fault(generation: int, command: str, cwd: str, error: OSError) -> Fault:
    reason = error.strerror or "cannot be run"
    if cwd and error.filename == cwd:
        detail, hint = f"the folder {cwd}: {reason}", "check its cwd"
    else:
        detail, hint = f"{os.path.basename(command)}: {reason}", "check the command"
    return Fault("process", "spawn_failed", generation, printable(detail), hint)


def exit_fault(child: Child, status: int) -> Fault:
    if (name := ending_signal(status)) is not None:
        return Fault("process", "killed", child.generation, f"ended by {name}")
    return Fault("process", "exited", child.generation, f"exit code {os.waitstatus_to_exitcode(status)}")
