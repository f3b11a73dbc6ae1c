"""Being the stdio host: from the start, or in the place of a predecessor that replaced itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from perdure.host import catalog_cache, compose, presence
from perdure.host.capsule import RESUME_ENV, TRIAL_ENV, Capsule, CapsuleError, ChildCapsule, read_capsule
from perdure.host.registry_mounts import RegistryMounts
from perdure.host.settings import Settings
from perdure.host.task_records import TaskRecords
from perdure.kernel.events import Note
from perdure.platform.guardian import Guardian
from perdure.platform.process_tree import client_process
from perdure.protocol.mounts import MountSpec
from perdure.supervise.child import Child
from perdure.supervise.line_io import Outbox


def serve_stdio(
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool = False,
) -> int:
    """Be the host on this process's own standard input and output until the client is gone."""
    if path := os.environ.get(RESUME_ENV):
        return _resume(path, load_settings, specs_of, wrapped=wrapped)
    settings = load_settings()
    specs = specs_of(settings)
    registry = None if wrapped else RegistryMounts(settings, os.environ, frozenset(specs))
    if registry is not None:
        specs = {**specs, **registry.specs()}
    client_in, client_out = _claim_stdio()
    guardian = Guardian.start()
    kernel = compose.new_kernel(
        specs,
        settings,
        wrapped=wrapped,
        catalogs={
            name: found for name, spec in specs.items() if (found := catalog_cache.load(spec)) is not None
        },
        tools=registry.tools_of(specs) if registry is not None else {},
        file_faults={
            "settings": settings.faults,
            "registry": registry.faults if registry is not None else (),
        },
        untrusted=registry.untrusted if registry is not None else (),
        tasks=TaskRecords().load(),
    )
    kernel.state.session.client_process = client_process() or ""
    host = compose.new_host(kernel, client_in, client_out, guardian, settings, registry)
    compose.announce(kernel, settings)
    try:
        return host.run()
    finally:
        presence.withdraw()


def _claim_stdio() -> tuple[int, int]:
    """The client's pipe for ourselves alone: a stray print, or a child, must never write into it."""
    client_in, client_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return client_in, client_out


def _resume(
    path: str,
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool,
) -> int:
    """Take over from a capsule; in a trial, only find out whether that would work.

    `load_settings` and `specs_of` are for the capsule of a version that put no mounts into it.
    """
    trial = os.environ.pop(TRIAL_ENV, "") == "1"
    os.environ.pop(RESUME_ENV, None)
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
    host = compose.new_host(kernel, capsule.client_in, capsule.client_out, guardian, settings, registry)
    host.signals.release()
    for fd in (capsule.client_in, capsule.client_out, capsule.guardian_fd):
        os.set_inheritable(fd, False)
    host.input_open = capsule.input_open
    host.client_reader.feed(capsule.unread)
    host.client_out = Outbox(capsule.client_out, capsule.unwritten)
    for known in capsule.children:
        host.adopt(_child(known, settings))
    compose.announce(kernel, settings)
    host.note(Note("rollout", {"phase": "host_replaced"}))
    try:
        return host.run(resumed=True)
    finally:
        presence.withdraw()


def _mounted(
    capsule: Capsule,
    load_settings: Callable[[], Settings],
    specs_of: Callable[[Settings], dict[str, MountSpec]],
    *,
    wrapped: bool,
) -> tuple[Settings, dict[str, MountSpec], RegistryMounts | None]:
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
