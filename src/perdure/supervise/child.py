"""One child process: its pipes, its group, and how it is started and ended.

What is known of a child are plain numbers (process id, descriptors), which a new host image can take over (law 15).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from perdure.platform import signals
from perdure.platform.children import lower_priority, signal_group, spawn
from perdure.platform.descriptors import ATOMIC_BYTES, set_blocking, widen
from perdure.platform.guardian import MARK, Guardian
from perdure.platform.polling import WRITABLE, wait
from perdure.supervise.line_io import LineReader, Outbox

TERMINATE_S = 1.0
KILL_S = 3.0
TAIL_BYTES = 4096


class Child:
    """A generation as the operating system knows it."""

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
        self.is_heard = False  # whether what it says there goes on to ours
        self.tail = b""
        self.input_open = True
        self.output_open = True
        self.quiet_until = 0.0
        self.broken_at: float | None = None
        self.stopping: list[tuple[float, int]] = []
        self.backlog_said = 0

    @property
    def key(self) -> tuple[str, int]:
        return (self.mount, self.generation)

    def close_input(self) -> None:
        if self.input_open:
            self.input_open = False
            os.close(self.outbox.fd)

    def close_output(self) -> None:
        if self.output_open:
            self.output_open = False
            os.close(self.stdout)

    def end_by(self, now: float) -> None:
        """Its input is closed: a process that stays is asked to go, then made to."""
        self.stopping = [(now + TERMINATE_S, signals.TERMINATE), (now + KILL_S, signals.KILL)]

    def close_stderr(self) -> None:
        if self.stderr >= 0:
            os.close(self.stderr)
            self.stderr = -1

    def read_stderr(self) -> bool:
        """Keep the end of what it says there; False when it says no more."""
        try:
            data = os.read(self.stderr, 1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self.is_heard:
            _say(data)
        return bool(data)

    def close(self) -> None:
        self.close_input()
        self.close_output()
        self.close_stderr()

    def signal(self, number: int) -> None:
        signal_group(self.pid, number)


def _say(data: bytes) -> None:
    """On our own standard error, as far as somebody reads it: to wait for him would hold up every session."""
    try:
        for at in range(0, len(data), ATOMIC_BYTES):
            if not wait(2, WRITABLE, 0):
                return
            os.write(2, data[at : at + ATOMIC_BYTES])
    except OSError:
        pass


def start(
    mount: str,
    generation: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
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
        env = {**env, MARK: guardian.mark}
        pid = spawn(argv, env, stdin=child_in, stdout=child_out, stderr=child_err, cwd=cwd)
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
