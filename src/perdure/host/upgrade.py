"""Replacing the host by what is installed now: same process, same pipes, same session (law 15).

    SIGUSR2 ─▶ write a trial capsule ─▶ a trial successor reads it and says yes ─▶ write the real one ─▶ execve

Nothing is given up before the trial has succeeded: a bad successor or a bad capsule keeps the incumbent.
The capsule is a one-shot file for its owner alone; it holds plain numbers (descriptors, process ids), the kernel's
state, the bytes that were read or not yet written, the settings and the mount specs. After `execve` the successor
reads no other file before it serves: a registry or a settings file that was edited meanwhile cannot fail it. The
ordinary check of the registry finds such an edit afterwards.
"""

from __future__ import annotations

import os
import sys

from perdure.host.capsule import (
    CAPSULE_VERSION,
    RESUME_ENV,
    TRIAL_ENV,
    Capsule,
    ChildCapsule,
    Mounted,
    discard,
    write_capsule,
)
from perdure.host.launch import own_command
from perdure.host.stdio import StdioHost
from perdure.kernel.events import Note
from perdure.platform.children import kill_group, replace_process, spawn

TRIAL_S = 15.0


def begin(host: StdioHost) -> None:
    """Try the successor on a copy of everything; replace ourselves when that has worked."""
    if host.supervisor.watched:
        return  # a trial is under way already
    if not _can_dump(host):
        _keep(host, "an oversize frame is on its way")
        return
    path = ""
    try:
        path = write_capsule(_pack(host))
        pid = _try_successor(path)
    except Exception as error:
        discard(path)
        _keep(host, _reason(error))
        return
    host.supervisor.guardian.remember(pid)
    deadline = host.loop.call_later(TRIAL_S, lambda: kill_group(pid))

    def ended(status: int) -> None:
        deadline.cancel()
        kill_group(pid)
        host.supervisor.guardian.forget(pid)
        discard(path)
        if status == 0:
            host.when_idle.append(lambda: _replace_ourselves(host))
        else:
            _keep(host, "the successor failed its trial")

    host.supervisor.watched[pid] = ended


def _keep(host: StdioHost, why: str) -> None:
    host.note(Note("rollout", {"phase": "host_kept", "detail": why}))


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _try_successor(path: str) -> int:
    """Start the successor as a child, only to read the capsule and say by its exit code whether it can."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return spawn(_argv(), {**os.environ, RESUME_ENV: path, TRIAL_ENV: "1"}, stdin=null, stdout=null)
    finally:
        os.close(null)


def _replace_ourselves(host: StdioHost) -> None:
    """The point of no return. Before it, any failure leaves everything as it was."""
    if not _can_dump(host):
        _keep(host, "an oversize frame is on its way")
        return
    if host.mount_calls is not None:
        host.mount_calls.release()
    try:
        path = write_capsule(_pack(host))
    except Exception as error:
        _keep(host, _reason(error))
        return
    kept = _descriptors(host)
    for fd in kept:
        os.set_inheritable(fd, True)
    host.signals.hold()  # until the successor listens
    try:
        replace_process(_argv(), {**os.environ, RESUME_ENV: path})
    except OSError as error:
        for fd in kept:
            os.set_inheritable(fd, False)
        discard(path)
        host.signals.release()
        _keep(host, error.strerror or "no execve")


def _argv() -> list[str]:
    return [*own_command(), *sys.argv[1:]]


def _can_dump(host: StdioHost) -> bool:
    return host.client_reader.can_dump and all(c.reader.can_dump for c in host.servers.values())


def _descriptors(host: StdioHost) -> list[int]:
    found = [host.client_in, host.client_out.fd, host.supervisor.guardian.fd]
    for child in host.servers.values():
        if child.input_open:
            found.append(child.outbox.fd)
        if child.output_open:
            found.append(child.stdout)
        if child.stderr >= 0:
            found.append(child.stderr)
    return found


def _pack(host: StdioHost) -> Capsule:
    return Capsule(
        CAPSULE_VERSION,
        os.getpid(),
        host.client_in,
        host.client_out.fd,
        host.input_open,
        host.client_reader.dump(),
        host.client_out.dump(),
        host.supervisor.guardian.fd,
        host.supervisor.guardian.pid,
        host.supervisor.guardian.mark,
        [
            ChildCapsule(
                c.mount,
                c.generation,
                c.pid,
                c.outbox.fd,
                c.stdout,
                c.reader.dump(),
                c.outbox.dump(),
                c.input_open,
                c.output_open,
                c.stderr,
                c.tail,
            )
            for c in host.servers.values()
        ],
        host.kernel.snapshot(),
        Mounted(
            host.settings,
            host.kernel.specs,
            host.registry.dump() if host.registry is not None else b"",
        ),
    )
