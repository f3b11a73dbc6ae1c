"""Rolling a mount over to what is installed now, without a client noticing (law 12).

    Settled ─begin─▶ Preparing ─same catalog──────────────────────▶ fence, activate
                               ─changed catalog─▶ Announced ─refresh or grace─▶ fence, activate

Any failure before the fence keeps the incumbent. After it the incumbent finishes what it holds.
"""

from __future__ import annotations

from perdure.kernel import mounts, opening, pins, recovery, streams
from perdure.kernel.catalog import CHANGED, changes, dump_catalog
from perdure.kernel.context import Context
from perdure.kernel.events import SaveCatalog
from perdure.kernel.state import (
    Announced,
    Draining,
    Link,
    Mount,
    Open,
    Preparing,
    Serving,
    Settled,
    Starting,
    Stopped,
    Waiting,
)
from perdure.protocol.faults import Fault


def begin(k: Context, mount: Mount) -> None:
    match mount.phase:
        case Serving():
            abandon(k, mount, "superseded")
            candidate = mounts.spawn(k, mount)
            mount.rollout = Preparing(candidate.generation, k.now + k.specs[mount.name].startup_s)
            k.note("rollout", mount=mount.name, generation=candidate.generation, phase="preparing")
        case Waiting() | Open() | Stopped():
            mount.unproductive = mount.opened = 0
            mounts.start(k, mount)
        case _:
            pass  # not running: the next start runs what is installed then


def prepared(k: Context, mount: Mount, candidate: Link) -> None:
    """The candidate is initialized and catalogued, and nobody outside knows of it yet."""
    kinds = changes(mount.catalog, candidate.draft)
    if not kinds or not streams.anyone_listens(k):
        fence(k, mount, candidate)
        return
    mount.rollout = Announced(candidate.generation, k.now + k.limits.refresh_grace_s)
    k.note("rollout", mount=mount.name, generation=candidate.generation, phase="announced")
    for kind in kinds:
        streams.announce(k, CHANGED[kind], kind)


def on_refresh(k: Context) -> None:
    """The client asks for a list: it is about to see the new catalog, so the new generation serves it."""
    for mount in k.state.mounts.values():
        if isinstance(mount.rollout, Announced):
            fence(k, mount, mount.links[mount.rollout.generation])


def fence(k: Context, mount: Mount, candidate: Link) -> None:
    """Work accepted before stays where it is; everything after goes to the candidate."""
    incumbent = mount.serving_link()
    mount.rollout = Settled()
    pins.compare(k, mount, candidate.draft)
    if mount.catalog != candidate.draft:
        mount.catalog = candidate.draft  # announced already, or nobody to tell
        k.public.invalidate()
        k.out.append(SaveCatalog(mount.name, dump_catalog(candidate.draft)))
    if incumbent is not None:
        incumbent.stage = Draining()
    k.note("rollout", mount=mount.name, generation=candidate.generation, phase="fenced")
    mounts.activate(k, mount, candidate)


def refused(k: Context, mount: Mount, fault: Fault) -> None:
    """The candidate failed before the fence: the incumbent never lost its place."""
    was_announced = isinstance(mount.rollout, Announced)
    mount.rollout = Settled()
    mount.last_fault = Fault(
        "rollout", "candidate_refused", fault.generation, f"{fault.fault_class}/{fault.code}"
    )
    k.note("rollout", mount=mount.name, generation=fault.generation, phase="refused", code=fault.code)
    if was_announced and mount.catalog is not None:
        for kind in CHANGED:
            streams.announce(k, CHANGED[kind], kind)  # what was announced did not come


def abandon(k: Context, mount: Mount, code: str) -> None:
    """Give up a rollout that has not reached its fence."""
    match mount.rollout:
        case Preparing(generation) | Announced(generation):
            fault = Fault("rollout", code, generation)
            recovery.lose(k, mount.links[generation], fault, stop=True)
        case Settled():
            pass


def promote(k: Context, mount: Mount) -> bool:
    """The incumbent died while a candidate was under way: the candidate takes its place."""
    match mount.rollout:
        case Preparing(generation, deadline):
            mount.rollout = Settled()
            mount.phase = Starting(generation, deadline)
            mount.restarts += 1
            return True
        case Announced(generation):
            mount.restarts += 1
            fence(k, mount, mount.links[generation])
            return True
        case Settled():
            return False


def tick(k: Context, mount: Mount) -> None:
    match mount.rollout:
        case Preparing(generation, deadline) if deadline <= k.now:
            opening.lose_late(k, mount.links[generation])
        case Announced(generation, until) if until <= k.now:
            fence(k, mount, mount.links[generation])
        case _:
            pass
