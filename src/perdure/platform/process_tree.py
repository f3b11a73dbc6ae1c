"""The client that started this process, found up the chain of its ancestors.

A client runs a hook through `sh -c` and a server through a launcher such as `uvx`, so its process is not always the
parent. Its identity is one word: the process namespace, the process id and the start time. A process id alone is used
again by the system. This module is loaded by every hook, so it imports little.
"""

from __future__ import annotations

import os

# Shells that run the command of another program. An interactive one is a client.
SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox")
# Programs that start another one and wait for it.
LAUNCHERS = ("env", "git", "nice", "nohup", "setsid", "stdbuf", "time", "timeout", "uv", "uvx")
# Options of a shell whose value is a file for a person's session: no command follows.
_INTERACTIVE = ("--rcfile", "--init-file")
_MOST_ANCESTORS = 32


class ProcessInfo:
    """`start` is the time of its start as the system tells it; `arguments` is its command line."""

    __slots__ = ("arguments", "name", "parent", "start")

    def __init__(self, parent: int, start: str, name: str, arguments: list[str]) -> None:
        self.parent = parent
        self.start = start
        self.name = name
        self.arguments = arguments


def client_process(pid: int | None = None) -> str | None:
    """The identity of the nearest ancestor that is no shell with a command and no launcher; None where the system does not
    tell. `pid` is where the search begins, if not at the parent."""
    pid = os.getppid() if pid is None else pid
    for _ in range(_MOST_ANCESTORS):
        info = read_process(pid)
        if info is None:
            return None
        if not _runs_another(info):
            return f"{_namespace()}:{pid}:{info.start}"
        pid = info.parent
    return None


def own_process() -> str | None:
    info = read_process(os.getpid())
    return f"{_namespace()}:{os.getpid()}:{info.start}" if info is not None else None


def has_ended(identity: str) -> bool:
    """Whether the process of an identity is gone. False where that cannot be told, as in another namespace."""
    namespace, _, rest = identity.partition(":")
    pid, _, start = rest.partition(":")
    if namespace != str(_namespace()) or not pid.isdigit():
        return False
    info = read_process(int(pid))
    return info is None or info.start != start


def read_process(pid: int) -> ProcessInfo | None:
    if pid <= 0:
        return None
    return _read_proc(pid) if os.path.isdir("/proc/self") else read_by_ps(pid)


def _read_proc(pid: int) -> ProcessInfo | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in it may hold spaces and parentheses; the fields after it do not. Of a script it is the script's.
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):  # listed until its parent waits for it
            return None
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = os.fsdecode(file.read()).split("\0")[:-1]
        return ProcessInfo(int(fields[1]), fields[19].decode(), _program(arguments), arguments)
    except (OSError, ValueError, IndexError):
        return None


def read_by_ps(pid: int) -> ProcessInfo | None:
    """For a system without `/proc`, such as macOS. The time of the start has five words."""
    import subprocess

    command = ["ps", "-o", "ppid=,lstart=,args=", "-p", str(pid)]
    try:
        # By its whole path: a folder of the PATH may be the workspace's.
        output = subprocess.run(
            command, executable="/bin/ps", capture_output=True, env={"LC_ALL": "C"}
        ).stdout
        parent, *start, line = output.decode(errors="replace").split(maxsplit=6)
        arguments = line.split()
        return ProcessInfo(int(parent), "_".join(start), _program(arguments), arguments)
    except (OSError, ValueError, IndexError):
        return None


def _program(arguments: list[str]) -> str:
    """A shell that a person has logged in to has a hyphen before its name."""
    return os.path.basename(arguments[0].removeprefix("-")) if arguments else ""


def _runs_another(info: ProcessInfo) -> bool:
    if info.name not in SHELLS:
        return info.name in LAUNCHERS
    for argument in info.arguments[1:]:
        if argument in _INTERACTIVE:
            return False
        if not argument.startswith("-"):
            return True  # a command or a script
    return False


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
