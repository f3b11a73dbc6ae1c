"""One child process: its pipes, its group, how it is started and why it ended.

What is known of a child are plain numbers (process id, descriptors), which a new host image can take over (law 15).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from perdure.platform.children import (
    ending_signal,
    exit_status,
    kill_group,
    lower_priority,
    spawn,
    terminate_group,
)
from perdure.platform.descriptors import ATOMIC_BYTES, pipe_size, set_blocking, widen
from perdure.platform.guardian import MARK, Guardian
from perdure.platform.polling import WRITABLE, wait
from perdure.protocol.faults import Fault, printable
from perdure.supervise.event_loop import Timer
from perdure.supervise.line_io import LineReader, Outbox, Oversize

TAIL_BYTES = 4096


class Launch(NamedTuple):
    """With what a child is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


class Ended(NamedTuple):
    fault: Fault
    code: int


class ChildListener(Protocol):
    """The owner of a child, told of what comes from it. `on_exit` is the last call."""

    def on_line(self, line: bytes) -> None: ...

    def on_noise(self, lines: int, oversize: Oversize | None = None) -> None:
        """Lines that are no frames, or one that was too long."""

    def on_backlog(self, size: int) -> None:
        """The bytes that wait to be written: said when the bound is passed, in either direction."""

    def on_exit(self, ended: Ended) -> None: ...


class Child:
    """A generation as the operating system knows it."""

    listener: ChildListener

    def __init__(
        self,
        mount: str,
        generation: int,
        pid: int,
        stdin: int,
        stdout: int,
        limit: int,
        *,
        unwritten: bytes = b"",
        stderr: int = -1,
    ) -> None:
        self.mount = mount
        self.generation = generation
        self.pid = pid
        self.stdout = stdout
        self.reader = LineReader(limit)
        self.outbox = Outbox(stdin, unwritten)
        self.stderr = stderr
        self.echoes_stderr = False
        self.tail = b""
        self.input_open = True
        self.output_open = True
        # The supervisor's notes.
        self.is_read = False
        self.is_written = False
        self.next_slice: Timer | None = None
        self.quiet_until = 0.0
        self.stop_timers: list[Timer] = []
        self.is_broken = False
        self.backlog_said = 0
        self.fault: Fault | None = None
        self.ended: Ended | None = None
        self.last_chunks: deque[bytes] = deque()

    # --- pipes -----------------------------------------------------------------------------------------------

    def read(self, most: int) -> bytes | None:
        """None where nothing is there yet, empty at the end."""
        try:
            return os.read(self.stdout, most)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def read_rest(self, chunk: int) -> list[bytes]:
        """What is in the pipe, and no more than it can hold: a grandchild may go on writing."""
        chunks: list[bytes] = []
        left = pipe_size(self.stdout)
        while left > 0 and (data := self.read(chunk)):
            left -= len(data)
            chunks.append(data)
        return chunks

    def read_stderr(self) -> bool:
        """Keep the end of its standard error; False at the end of it."""
        try:
            data = os.read(self.stderr, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self.echoes_stderr:
            _echo(data)
        return bool(data)

    def close_input(self) -> None:
        if self.input_open:
            self.input_open = False
            os.close(self.outbox.fd)

    def close_output(self) -> None:
        if self.output_open:
            self.output_open = False
            os.close(self.stdout)

    def close_stderr(self) -> None:
        if self.stderr >= 0:
            os.close(self.stderr)
            self.stderr = -1

    # --- the process -----------------------------------------------------------------------------------------

    def exit_status(self) -> int | None:
        return exit_status(self.pid)

    def terminate(self) -> None:
        terminate_group(self.pid)

    def kill(self) -> None:
        """All of its group, and also after its own end."""
        kill_group(self.pid)


def _echo(data: bytes) -> None:
    """On our own standard error, as far as it is read: to wait for a reader would hold up every session."""
    try:
        for at in range(0, len(data), ATOMIC_BYTES):
            if not wait(2, WRITABLE, 0):
                return
            os.write(2, data[at : at + ATOMIC_BYTES])
    except OSError:
        pass


def start_child(
    mount: str,
    generation: int,
    launch: Launch,
    guardian: Guardian,
    limit: int,
    *,
    gently: bool = False,
    keep_stderr: bool = False,
) -> Child:
    """Run a command as the leader of a process group of its own, never through a shell.

    With `keep_stderr` the end of its standard error is kept here instead of going to the host's. Raises OSError
    with the reason where it cannot be run.
    """
    opened: list[int] = []
    try:
        for _ in range(3 if keep_stderr else 2):
            opened += os.pipe()
        child_in, our_out, our_in, child_out = opened[:4]
        our_err, child_err = opened[4:] or (-1, -1)
        env = {**launch.env, MARK: guardian.mark}
        pid = spawn(launch.argv, env, stdin=child_in, stdout=child_out, stderr=child_err, cwd=launch.cwd)
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    guardian.remember(pid)
    if gently:
        lower_priority(pid)
    for fd in (child_in, child_out, *opened[5:]):
        os.close(fd)
    for fd in (our_in, our_out, *opened[4:5]):
        set_blocking(fd, False)
    for fd in (our_in, our_out):
        widen(fd)
    return Child(mount, generation, pid, our_out, our_in, limit, stderr=our_err)


def spawn_fault(generation: int, command: str, cwd: str, error: OSError) -> Fault:
    reason = error.strerror or "cannot be run"
    if cwd and error.filename == cwd:
        detail, hint = f"the folder {cwd}: {reason}", "check its cwd"
    else:
        detail, hint = f"{os.path.basename(command)}: {reason}", "check the command"
    return Fault("process", "spawn_failed", generation, printable(detail), hint)


def exit_fault(generation: int, status: int) -> Fault:
    if (name := ending_signal(status)) is not None:
        return Fault("process", "killed", generation, f"ended by {name}")
    return Fault("process", "exited", generation, f"exit code {os.waitstatus_to_exitcode(status)}")
