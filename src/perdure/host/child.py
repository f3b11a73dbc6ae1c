"""One child process: its pipes, its group, and how it is started and ended.

The process is forked here rather than by `subprocess` for two reasons: the child must tell the guardian
of its group before it runs anything, and what is known of it must be plain numbers that a new host
image can take over (law 15).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from perdure.host.guardian import Guardian, signal_group
from perdure.host.lines import LineReader
from perdure.host.outbox import Outbox


class Child:
    """A generation as the operating system knows it."""

    def __init__(self, mount: str, generation: int, pid: int, stdin: int, stdout: int, limit: int) -> None:
        self.mount = mount
        self.generation = generation
        self.pid = pid
        self.stdout = stdout
        self.reader = LineReader(limit)
        self.outbox = Outbox(stdin)
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

    Raises OSError with the reason where it cannot be run.
    """
    child_in, our_out = os.pipe()
    our_in, child_out = os.pipe()
    failed_r, failed_w = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _become(argv, env, cwd, child_in, child_out, failed_w, guardian)
    finally:
        for fd in (child_in, child_out, failed_w):
            os.close(fd)
    with os.fdopen(failed_r, "rb") as failed:
        reason = failed.read(64)
    if reason:
        os.close(our_in)
        os.close(our_out)
        os.waitpid(pid, 0)
        guardian.forget(pid)
        raise OSError(int(reason), os.strerror(int(reason)))
    os.set_blocking(our_in, False)
    os.set_blocking(our_out, False)
    return Child(mount, generation, pid, our_out, our_in, limit)


def _become(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdin: int,
    stdout: int,
    failed: int,
    guardian: Guardian,
) -> None:
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
        os.write(failed, b"%d" % (error.errno or 0))
    finally:
        os._exit(127)
