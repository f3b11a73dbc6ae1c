"""One child process: its pipes, its group, and how it is started and ended.

The process is forked here rather than by `subprocess` for three reasons: the child must tell the guardian
of its group before it runs anything; the host must not wait for the new program to be loaded, which takes
six times as long as the fork; and what is known of it must be plain numbers that a new host image can
take over (law 15).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NoReturn

from perdure.host.guardian import Guardian, signal_group
from perdure.host.lines import LineReader
from perdure.host.outbox import Outbox

TERMINATE_S = 1.0
KILL_S = 3.0


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
        complaint: int = -1,
    ) -> None:
        self.mount = mount
        self.generation = generation
        self.pid = pid
        self.stdout = stdout
        self.reader = LineReader(limit)
        self.outbox = Outbox(stdin, unwritten)
        self.input_open = True
        self.output_open = True
        self.quiet_until = 0.0
        self.broken_at: float | None = None
        self.stopping: list[tuple[float, int]] = []
        self.backlog_said = 0
        self._complaint = complaint

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
        self.stopping = [(now + TERMINATE_S, signal.SIGTERM), (now + KILL_S, signal.SIGKILL)]

    def close(self) -> None:
        self.close_input()
        self.close_output()
        self._close_complaint()

    def spoke(self) -> None:
        """It runs its own program: there is nothing to complain of any more."""
        self._close_complaint()

    def why_not_started(self) -> str | None:
        """Of a process that ended: why its command could not be run, or None where it was."""
        if self._complaint < 0:
            return None
        number = os.read(self._complaint, 64)
        return os.strerror(int(number)) if number else None

    def _close_complaint(self) -> None:
        if self._complaint >= 0:
            os.close(self._complaint)
            self._complaint = -1

    def signal(self, number: int) -> None:
        signal_group(self.pid, number)


def start(
    mount: str,
    generation: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    guardian: Guardian,
    limit: int,
) -> Child:
    """Run a command as the leader of a process group of its own, never through a shell.

    Raises OSError where no process can be made. Whether the command could be run is known when it speaks
    or ends.
    """
    opened: list[int] = []
    try:
        for _ in range(3):
            opened += os.pipe()
        child_in, our_out, our_in, child_out, complaint, failed = opened
        pid = os.fork()
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    if pid == 0:
        _become(argv, env, cwd, child_in, child_out, failed, guardian)
    try:
        os.setpgid(pid, pid)  # it does so itself: whoever is first, its group is there from here on
    except OSError:
        pass
    for fd in (child_in, child_out, failed):
        os.close(fd)
    for fd in (our_in, our_out, complaint):
        os.set_blocking(fd, False)
    return Child(mount, generation, pid, our_out, our_in, limit, complaint=complaint)


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdin: int,
    stdout: int,
    failed: int,
    guardian: Guardian,
) -> NoReturn:
    try:
        os.setpgid(0, 0)
        guardian.remember(os.getpid())
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if cwd:
            os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(failed, b"%d" % (error.errno or errno.ENOEXEC))
    except ValueError:  # a zero byte in a word
        os.write(failed, b"%d" % errno.EINVAL)
    finally:
        os._exit(127)
