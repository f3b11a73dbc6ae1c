"""Child processes: starting one in a process group of its own, ending the group, and how it ended."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from perdure.platform import signals

_NICE: Final = 10


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: int,
    stdout: int,
    stderr: int = -1,
    cwd: str = "",
    own_group: bool = True,
) -> int:
    """Start a command, never through a shell, and return its process id, which is also that of its group.

    Without `stderr` it shares ours. Raises OSError where it cannot be run; where the directory is what fails, the
    `filename` of the error is the directory.

    `subprocess` changes the directory in the child, between vfork and exec: `posix_spawn` could only be given one by
    a chdir of the whole process, which other threads would see.
    """
    import subprocess

    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr if stderr >= 0 else None,
            env=env,
            cwd=cwd or None,
            process_group=0 if own_group else None,
        )
    except ValueError:  # a zero byte, or half of a surrogate pair, in a word
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
    process.returncode = 0  # the object goes here: it must not wait for a child that is ours to wait for
    return process.pid


def lower_priority(pid: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
    except OSError:
        pass  # it is gone already


def signal_group(group: int, number: int) -> bool:
    """Whether any process was in the group. The number 0 only asks that."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def terminate_group(group: int) -> None:
    """Ask all of its processes to end in good order."""
    signal_group(group, signals.TERMINATE)


def kill_group(group: int) -> None:
    """End all of its processes at once."""
    signal_group(group, signals.KILL)


def exit_status(pid: int) -> int | None:
    """The status of a child that ended, or None while it runs. Only the first call after its end gets the status."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return status if ended else None


def ending_signal(status: int) -> str | None:
    """The name of the signal that ended a child; None for one that ended by itself."""
    return signals.name_of(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else None


def replace_process(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Run another program in this process: same id, same children, same inheritable descriptors.

    Raises OSError where that fails and the process goes on as it is.
    """
    os.execve(argv[0], list(argv), env)
