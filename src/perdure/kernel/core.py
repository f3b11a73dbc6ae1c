"""The kernel: one event in, its effects out, nothing else happens.

| module | decides |
|---|---|
| session, incoming | what a client's frame means, in both eras |
| welcome | opening a session, its lists, what waits for the first catalog |
| routing | to which server a request goes, under which name |
| ledger | when an invocation is dispatched |
| answering | its one answer |
| deadlines | what becomes of one that takes too long |
| recovery | what becomes of work whose child is lost |
| mounts | the life of a server's generations, restart budget, circuit |
| remounting | what is mounted, as the registry changes |
| pins | whether a server's tools are what they were |
| opening | the private handshake with a new generation |
| catalog | what is offered, under which names, and who serves it |
| rollout | when a new generation takes over |
| asks | what servers ask of the client |
| streams | subscriptions, log levels, change notifications |
| ops | `health`, `telemetry`, `mounts`, `tools` |
| metrics | counters and latencies |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.kernel import (
    catalog,
    deadlines,
    ledger,
    metrics,
    mounts,
    pins,
    recovery,
    remounting,
    rollout,
    session,
    snapshot,
    streams,
    welcome,
)
from perdure.kernel.events import (
    Approved,
    ChildBacklog,
    ChildFrame,
    ChildLost,
    ChildNoise,
    ChildStarted,
    ClientClosed,
    ClientFrame,
    ClientOversize,
    Effect,
    Event,
    Exit,
    FileFaults,
    Note,
    NotRecorded,
    Order,
    Reload,
    Remount,
    Shutdown,
    Tick,
    ToChild,
    ToClient,
)
from perdure.kernel.state import (
    ChildCatalog,
    Disabled,
    Idle,
    Invocation,
    KnownTools,
    Link,
    Mount,
    Session,
    State,
)
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import Limits, MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.protocol.tool_groups import enabled_groups


class Kernel:
    """The state of one client's session and the rules that change it."""

    def __init__(
        self,
        specs: Mapping[str, MountSpec],
        *,
        session_id: str,
        now: float = 0.0,
        limits: Limits | None = None,
        wrapped: bool = False,
        version: str = "0",
        render: str = "porcelain",
        detail: str = "concise",
        profile: str = "full",
        catalogs: Mapping[str, ChildCatalog] | None = None,
        tools: Mapping[str, KnownTools] | None = None,
        file_faults: Mapping[str, Sequence[Fault]] | None = None,
        untrusted: tuple[UntrustedFile, ...] = (),
        places: Callable[[], dict[str, str]] = dict,
        seed: int = 1,
    ) -> None:
        self.specs = dict(specs)
        self.untrusted = untrusted
        self.places = places  # the workspace and its store, for `health`
        self.limits = limits or Limits()
        self.wrapped = wrapped
        self.version = version
        self.render = render
        self.detail = detail
        self.profile = profile
        self.now = now
        self.out: list[Effect] = []
        known, accepted = catalogs or {}, tools or {}
        self.state = State(
            session=Session(session_id=session_id, started_at=now),
            mounts={
                name: Mount(
                    name=name,
                    phase=Disabled() if spec.untrusted else Idle(),
                    catalog=None if spec.untrusted else known.get(name),
                    settled=bool(spec.untrusted) or name in known,
                    known=accepted[name].known if name in accepted else None,
                    held=accepted[name].held if name in accepted else {},
                )
                for name, spec in specs.items()
            },
            file_faults={source: list(faults) for source, faults in (file_faults or {}).items()},
            jitter=seed,
        )
        self.public = catalog.Public(self)

    # --- the one entrance -------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and return its effects, in order. Time never runs backwards in here."""
        self.now = max(self.now, now)
        self.out = []
        _HANDLERS[type(event)](self, event)
        for mount in self.state.mounts.values():
            if mount.queue or len(mount.links) > 1:  # else there is nothing to move, and there may be many
                mounts.move_on(self, mount)
        self._finish()
        return self.out

    def start(self, now: float) -> list[Effect]:
        """Start what does not depend on who the client is: the built-in worker."""
        self.now = max(self.now, now)
        self.out = []
        self.note("session", phase="started", version=self.version, session=self.state.session.session_id)
        for source, faults in self.state.file_faults.items():
            metrics.note_file_faults(self, source, faults)
        for mount in self.state.mounts.values():
            if self.specs[mount.name].builtin:
                mounts.start(self, mount)
        return self.out

    def take_up(self, session: Session, lost: list[Invocation], now: float) -> list[Effect]:
        """Go on with a session whose host was killed, and with what that had sent on: its servers died with it."""
        self.now = max(self.now, now)
        self.out = []
        self.state.session = msgspec.structs.replace(session, started_at=now, listens=[], closing=None)
        fault = Fault("process", "host_lost", 0, "the host was ended while the call was running")
        for call in lost:
            self.state.calls[call.seq] = call
            self.state.ids[call.public_id] = call.seq
            mount = self.state.mounts.get(call.mount)
            if mount is None:
                recovery.answer_unknown(self, call, fault)
            else:
                recovery.dispose(self, mount, call, fault)
        mounts.start_all(self)
        return self.out

    def next_wake(self) -> float | None:
        """When the next Tick is due, or None."""
        times = [t for m in self.state.mounts.values() for t in mounts.timers(self, m)]
        times += deadlines.timers(self)
        times += [w.until for w in self.state.waiters]
        closing = self.state.session.closing
        if closing is not None:
            if closing <= self.now:
                return None  # the session is over
            times.append(closing)
        return min(times, default=None)

    def _finish(self) -> None:
        closing = self.state.session.closing
        if closing is None:
            return
        if closing <= self.now:
            welcome.answer_waiting(self)
            recovery.end_all(self)
        if not (self.state.calls or self.state.waiters):
            self.out.append(Exit())

    # --- snapshot (law 15) --------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        return snapshot.dump_state(self.state, self.now)

    def restore(self, data: bytes) -> None:
        """Take up the state of a predecessor. Raises ValueError and changes nothing where it does not fit."""
        capsule = snapshot.load_state(data, self.specs, self.limits)
        capsule.state.session.started_at = self.state.session.started_at  # uptime is the process image's own
        self.state = capsule.state
        self.now = capsule.now
        for identity, ask in self.state.asks.items():
            if ask.asked_at < 0:
                self.state.asks[identity] = msgspec.structs.replace(ask, asked_at=self.now)
        self.public = catalog.Public(self)

    def release(self) -> None:
        """The session is over and nothing more comes: let go of what points back here, so that memory is free at once."""
        del self.public

    # --- what every rule uses -------------------------------------------------------------------------

    @property
    def groups(self) -> frozenset[str]:
        """The groups of built-in tools that this session lists."""
        session = self.state.session
        return enabled_groups(session.profile or self.profile, session.groups)

    def mint(self) -> int:
        """A number never used before in this session: call order, child ids and ask ids come from here."""
        self.state.seq += 1
        return self.state.seq

    def to_client(self, frame: bytes) -> None:
        self.out.append(ToClient(frame))

    def to_child(self, link: Link, frame: bytes) -> None:
        self.out.append(ToChild(link.mount, link.generation, frame))

    def note(self, event: str, **fields: str | int | float | bool) -> None:
        self.out.append(Note(event, fields))

    def link(self, mount: str, generation: int) -> Link | None:
        found = self.state.mounts.get(mount)
        return found.links.get(generation) if found else None

    def random(self) -> float:
        """A number in [0, 1), from the state alone, so that every history can be repeated."""
        self.state.jitter = (self.state.jitter * 6364136223846793005 + 1442695040888963407) % (1 << 63)
        return (self.state.jitter >> 20) / float(1 << 43)

    def quarantine(self, kind: str, count: int = 1) -> None:
        found = self.state.metrics.quarantined
        found[kind] = found.get(kind, 0) + count


def _client_closed(k: Kernel, event: ClientClosed | Shutdown) -> None:
    if k.state.session.closing is None:
        k.state.session.closing = k.now + k.limits.drain_s
        k.note("session", phase="closing")
        if isinstance(event, Shutdown):
            welcome.answer_waiting(k)
        streams.close_all(k)


def _tick(k: Kernel, event: Tick) -> None:
    for mount in k.state.mounts.values():
        mounts.tick(k, mount)
    deadlines.tick(k)
    welcome.tick(k)


def _reload(k: Kernel, event: Reload) -> None:
    for mount in k.state.mounts.values():
        rollout.begin(k, mount)


def _order(k: Kernel, event: Order) -> None:
    if (mount := k.state.mounts.get(event.mount)) is not None:
        act = {"restart": mounts.restart, "enable": mounts.enable, "disable": mounts.disable}
        act[event.action](k, mount)


_HANDLERS: Final[dict[type[Any], Callable[[Kernel, Any], None]]] = {
    ClientFrame: lambda k, e: session.on_frame(k, e),
    ClientOversize: lambda k, e: session.on_oversize(k, e),
    ClientClosed: _client_closed,
    Shutdown: _client_closed,
    ChildStarted: lambda k, e: mounts.on_started(k, e),
    ChildFrame: lambda k, e: mounts.on_frame(k, e),
    ChildNoise: lambda k, e: mounts.on_noise(k, e),
    ChildLost: lambda k, e: recovery.on_lost(k, e),
    ChildBacklog: lambda k, e: mounts.on_backlog(k, e),
    NotRecorded: lambda k, e: ledger.take_back(k, e),
    Tick: _tick,
    Reload: _reload,
    Order: _order,
    Remount: lambda k, e: remounting.remount(k, e.specs, e.untrusted),
    FileFaults: lambda k, e: metrics.found_in_files(k, e.source, e.faults),
    Approved: lambda k, e: pins.approve(k, e.mount, e.tools),
}
