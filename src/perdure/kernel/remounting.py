"""What is mounted, as the registry changes: only what changed is touched.

new                              mounted, and started as at the beginning of a session
gone                             stopped; its tools leave the list
started differently              rolled over, as at a reload: the old one serves until the new one can
only its tools, replay or times  the rules change, the process stays
trusted                          started
no longer trusted                stopped, and kept in the list as such
"""

from __future__ import annotations

from perdure.kernel import mounts, recovery, rollout, streams, welcome
from perdure.kernel.catalog import CHANGED
from perdure.kernel.context import Context
from perdure.kernel.state import Disabled, Idle, Mount, Starting
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile


def remount(k: Context, wanted: dict[str, MountSpec], untrusted: tuple[UntrustedFile, ...] = ()) -> None:
    k.untrusted = untrusted
    for name in [name for name, spec in k.specs.items() if spec.managed and name not in wanted]:
        _unmount(k, k.state.mounts[name])
    for name, spec in wanted.items():
        known = k.specs.get(name)
        if known is None:
            _mount(k, spec)
        elif (known.managed or known.builtin) and known != spec:
            _change(k, k.state.mounts[name], known, spec)


def _mount(k: Context, spec: MountSpec) -> None:
    k.specs[spec.name] = spec
    mount = Mount(name=spec.name, settled=True)  # what it comes to offer is news
    k.state.mounts[spec.name] = mount
    k.public.invalidate()
    k.note("lifecycle", mount=spec.name, generation=0, phase="mounted")
    if spec.untrusted:
        mount.phase = Disabled()
    elif k.state.session.seen:
        mounts.start(k, mount)


def _unmount(k: Context, mount: Mount) -> None:
    """Its calls are answered by their replay class first, so that nothing refers to it any more."""
    had = mount.catalog
    mounts.drop_all(k, mount, "unmounted")
    mount.phase = Disabled()
    recovery.give_up_waiting(k, mount)
    del k.state.mounts[mount.name]
    del k.specs[mount.name]
    k.note("lifecycle", mount=mount.name, generation=mount.generation, phase="unmounted")
    welcome.flush_waiters(k)
    mounts.announce_difference(k, had)


def _change(k: Context, mount: Mount, known: MountSpec, spec: MountSpec) -> None:
    k.specs[mount.name] = spec
    k.public.invalidate()
    if spec.untrusted:
        mounts.disable(k, mount)
        mount.catalog = None
        k.public.invalidate()
    elif known.untrusted:
        mount.phase = Idle()
        if k.state.session.seen:
            mounts.start(k, mount)
    elif not known.starts_like(spec):
        if isinstance(mount.phase, Starting):
            mounts.restart(k, mount)
        elif not isinstance(mount.phase, Idle):
            rollout.begin(k, mount)
    elif (known.allow, known.deny, known.prefix) != (spec.allow, spec.deny, spec.prefix):
        streams.announce(k, CHANGED["tools"], "tools")
