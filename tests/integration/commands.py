"""Running `perdure` commands as a person does, on a bed's workspace: piped, or on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import Any

from command_line import run_command
from testbed import Bed

SCRIPT = [sys.executable, "-P", "-m", "perdure"]


def perdure(bed: Bed, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SCRIPT, *words],
        env={**bed.environ, **environ},
        cwd=bed.workspace,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_here(bed: Bed, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """As `perdure`, in this process."""
    return run_command(*words, env={**bed.environ, **environ}, cwd=bed.workspace)


def told(bed: Bed, *words: str, code: int = 0, **environ: str) -> Any:
    """What a command prints as JSON."""
    done = run_here(bed, *words, "--json", **environ)
    assert done.returncode == code, done
    return json.loads(done.stdout)


class Terminal:
    """A command on a terminal of its own, with what it has shown so far."""

    def __init__(self, bed: Bed, *words: str, columns: int = 80, **environ: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            env = {**bed.environ, "TERM": "xterm-256color", **environ}
            os.chdir(bed.workspace)
            os.execve(sys.executable, [*SCRIPT, *words], env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.shown = ""

    def wait_for(self, text: str, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < until, f"{text!r} was never shown: {self.shown[-2000:]}"
            assert self._read(), f"it ended without showing {text!r}: {self.shown[-2000:]}"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def end(self, seconds: float = 20) -> int:
        """Read until it ends; its exit code."""
        until = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < until, f"it does not end: {self.shown[-2000:]}"
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # its other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)
