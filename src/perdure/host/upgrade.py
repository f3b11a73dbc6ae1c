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
import stat
import sys
import time
from typing import TYPE_CHECKING

import msgspec

from perdure.host.settings import Settings
from perdure.platform import directories, signals
from perdure.platform.children import replace_process, signal_group, spawn
from perdure.platform.guardian import Guardian
from perdure.platform.permissions import user_id
from perdure.platform.sync import sync_file
from perdure.protocol.mounts import MountSpec
from perdure.storage.user_dirs import private_dir
from perdure.supervise.child import Child
from perdure.supervise.line_io import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.host.loop import Shell
    from perdure.host.registry_mounts import RegistryMounts

VARIABLE = "PERDURE_RESUME"
TRIAL = "PERDURE_RESUME_TRIAL"
CAPSULE_VERSION = 1
MAX_CAPSULE = 512 * 1024 * 1024
TRIAL_S = 15.0


class ChildCapsule(msgspec.Struct, frozen=True):
    mount: str
    generation: int
    pid: int
    stdin: int
    stdout: int
    unread: bytes
    unwritten: bytes
    input_open: bool
    output_open: bool
    stderr: int = -1
    tail: bytes = b""


class Mounted(msgspec.Struct, frozen=True):
    """What was mounted, and by which settings. `registry` is `RegistryMounts.dump`, empty where there is none."""

    settings: Settings
    specs: dict[str, MountSpec]
    registry: bytes = b""


class Capsule(msgspec.Struct, frozen=True):
    version: int
    pid: int
    client_in: int
    client_out: int
    input_open: bool
    unread: bytes
    unwritten: bytes
    guardian_fd: int
    guardian_pid: int
    guardian_mark: str
    children: list[ChildCapsule]
    kernel: bytes
    mounted: Mounted | None = None  # None from a version that wrote none: then the files are read again


class CapsuleError(ValueError):
    """This file is not a capsule that this process may open."""


# --- the incumbent -------------------------------------------------------------------------------------------


def begin(shell: Shell) -> None:
    """Try the successor on a copy of everything; replace ourselves when that has worked."""
    if shell.watched:
        return  # a trial is under way already
    if not _can_dump(shell):
        _keep(shell, "an oversize frame is on its way")
        return
    path = ""
    try:
        path = write_capsule(_pack(shell))
        pid = _try_successor(path)
    except Exception as error:
        discard(path)
        _keep(shell, _reason(error))
        return
    shell.guardian.remember(pid)
    deadline = (time.monotonic() + TRIAL_S, lambda: _end_trial(pid))

    def ended(status: int) -> None:
        if deadline in shell.deadlines:
            shell.deadlines.remove(deadline)
        _end_trial(pid)
        shell.guardian.forget(pid)
        discard(path)
        if status == 0:
            shell.at_rest.append(lambda: _replace_ourselves(shell))
        else:
            _keep(shell, "the successor failed its trial")

    shell.watched[pid] = ended
    shell.deadlines.append(deadline)


def _keep(shell: Shell, why: str) -> None:
    shell.note("rollout", phase="host_kept", detail=why)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _end_trial(pid: int) -> None:
    signal_group(pid, signals.KILL)


def _try_successor(path: str) -> int:
    """Start the successor as a child, only to read the capsule and say by its exit code whether it can."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return spawn(_argv(), {**os.environ, VARIABLE: path, TRIAL: "1"}, stdin=null, stdout=null)
    finally:
        os.close(null)


def _replace_ourselves(shell: Shell) -> None:
    """The point of no return. Before it, any failure leaves everything as it was."""
    if not _can_dump(shell):
        _keep(shell, "an oversize frame is on its way")
        return
    if shell.mount_calls is not None:
        shell.mount_calls.release()
    try:
        path = write_capsule(_pack(shell))
    except Exception as error:
        _keep(shell, _reason(error))
        return
    kept = _descriptors(shell)
    for fd in kept:
        os.set_inheritable(fd, True)
    shell.signals.hold()  # until the successor listens
    try:
        replace_process(_argv(), {**os.environ, VARIABLE: path})
    except OSError as error:
        for fd in kept:
            os.set_inheritable(fd, False)
        discard(path)
        shell.signals.release()
        _keep(shell, error.strerror or "no execve")


def _argv() -> list[str]:
    from perdure.host.compose import own_command

    return [*own_command(), *sys.argv[1:]]


def _can_dump(shell: Shell) -> bool:
    return shell.client_reader.can_dump and all(c.reader.can_dump for c in shell.children.values())


def _descriptors(shell: Shell) -> list[int]:
    found = [shell.client_in, shell.client_out.fd, shell.guardian.fd]
    for child in shell.children.values():
        if child.input_open:
            found.append(child.outbox.fd)
        if child.output_open:
            found.append(child.stdout)
        if child.stderr >= 0:
            found.append(child.stderr)
    return found


def _pack(shell: Shell) -> Capsule:
    return Capsule(
        CAPSULE_VERSION,
        os.getpid(),
        shell.client_in,
        shell.client_out.fd,
        shell.input_open,
        shell.client_reader.dump(),
        shell.client_out.dump(),
        shell.guardian.fd,
        shell.guardian.pid,
        shell.guardian.mark,
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
            for c in shell.children.values()
        ],
        shell.kernel.snapshot(),
        Mounted(
            shell.settings,
            shell.kernel.specs,
            shell.registry.dump() if shell.registry is not None else b"",
        ),
    )


# --- the capsule ------------------------------------------------------------------------------------------------


def write_capsule(capsule: Capsule) -> str:
    """A new file that nobody else can read and that was not there before, on disk before it is named."""
    from binascii import hexlify

    path = os.path.join(private_dir("capsules"), hexlify(os.urandom(16)).decode())
    fd = directories.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | directories.NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.msgpack.encode(capsule))
        file.flush()
        sync_file(fd)
    return path


def read_capsule(path: str, *, consume: bool) -> Capsule:
    """Open a capsule of our own. Raises CapsuleError for any other file, and leaves that alone."""
    try:
        fd = directories.open(path, os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK)
    except OSError as error:
        raise CapsuleError(f"cannot be opened: {error.strerror}") from None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != user_id() or facts.st_mode & 0o077:
            raise CapsuleError("is not a private file of ours")
        if consume:
            discard(path)
        if facts.st_size > MAX_CAPSULE:
            raise CapsuleError("is too large")
        with os.fdopen(fd, "rb", closefd=False) as file:
            capsule = msgspec.msgpack.decode(file.read(), type=Capsule)
    except msgspec.MsgspecError as error:
        raise CapsuleError(f"is damaged: {error}") from None
    finally:
        os.close(fd)
    if capsule.version != CAPSULE_VERSION:
        raise CapsuleError(f"has version {capsule.version}, not {CAPSULE_VERSION}")
    return capsule


def discard(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


# --- the successor ------------------------------------------------------------------------------------------------


def resumption() -> str | None:
    return os.environ.get(VARIABLE) or None


def resume(
    path: str,
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool,
) -> int:
    """Take over from a capsule; in a trial, only find out whether that would work.

    `load_settings` and `specs_of` are for the capsule of a version that put no mounts into it.
    """
    from perdure.host import compose, presence

    trial = os.environ.pop(TRIAL, "") == "1"
    os.environ.pop(VARIABLE, None)
    try:
        capsule = read_capsule(path, consume=not trial)
        settings, specs, registry = _mounted(capsule, load_settings, specs_of, wrapped=wrapped)
        untrusted = registry.untrusted if registry is not None else ()
        kernel = compose.new_kernel(specs, settings, wrapped=wrapped, untrusted=untrusted)
        kernel.restore(capsule.kernel)
        if not trial and capsule.pid != os.getpid():
            raise CapsuleError("was written for another process")
    except ValueError as error:
        print(f"perdure: the snapshot of the session {error}", file=sys.stderr)
        return 1
    if trial:
        return 0
    guardian = Guardian(capsule.guardian_fd, capsule.guardian_pid, capsule.guardian_mark)
    shell = compose.new_shell(kernel, capsule.client_in, capsule.client_out, guardian, settings, registry)
    shell.signals.release()
    for fd in (capsule.client_in, capsule.client_out, capsule.guardian_fd):
        os.set_inheritable(fd, False)
    shell.input_open = capsule.input_open
    shell.client_reader.feed(capsule.unread)
    shell.client_out = Outbox(capsule.client_out, capsule.unwritten)
    for known in capsule.children:
        shell.adopt(_child(known, settings))
    compose.announce(kernel, settings)
    shell.note("rollout", phase="host_replaced")
    try:
        return shell.run(resumed=True)
    finally:
        presence.withdraw()


def _mounted(
    capsule: Capsule,
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool,
) -> tuple[Settings, dict[str, MountSpec], RegistryMounts | None]:
    from perdure.host.registry_mounts import RegistryMounts

    known = capsule.mounted
    if known is not None:
        if wrapped:
            return known.settings, known.specs, None
        taken = frozenset(name for name, spec in known.specs.items() if not spec.managed)
        registry = RegistryMounts(known.settings, os.environ, taken)
        if known.registry:
            registry.restore(known.registry)
        return known.settings, known.specs, registry
    settings = load_settings()
    specs = specs_of(settings)
    if wrapped:
        return settings, specs, None
    registry = RegistryMounts(settings, os.environ, frozenset(specs))
    return settings, {**specs, **registry.specs()}, registry


def _child(known: ChildCapsule, settings: Settings) -> Child:
    child = Child(
        known.mount,
        known.generation,
        known.pid,
        known.stdin,
        known.stdout,
        settings.limits.frame_bytes,
        unwritten=known.unwritten,
        stderr=known.stderr,
    )
    child.tail = known.tail
    child.input_open, child.output_open = known.input_open, known.output_open
    child.reader.feed(known.unread)
    if known.input_open:
        os.set_inheritable(known.stdin, False)
    if known.output_open:
        os.set_inheritable(known.stdout, False)
    if known.stderr >= 0:
        os.set_inheritable(known.stderr, False)
    return child
