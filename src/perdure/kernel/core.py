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
| metrics | counters and latencies |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.kernel import (
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
from perdure.kernel.catalog import CHANGED
from perdure.kernel.context import Context
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
    NotRecorded,
    Order,
    Reload,
    Remount,
    Shutdown,
    Tick,
)
from perdure.kernel.internal_events import ToolGroupSet
from perdure.kernel.state import (
    Invocation,
    Session,
)
from perdure.protocol.faults import Fault


class Kernel(Context):
    """The one entrance to the rules: an event in, its effects out."""

    # --- the one entrance -------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and return its effects, in order. Time never runs backwards in here."""
        self.now = max(self.now, now)
        self.out = []
        self.emit(event)
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
        self.public = self._public_catalog()

    def emit(self, event: msgspec.Struct) -> None:
        _HANDLERS[type(event)](self, event)


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


def _set_tool_group(k: Kernel, event: ToolGroupSet) -> None:
    k.state.session.groups[event.group] = event.is_enabled
    streams.announce(k, CHANGED["tools"], "tools")


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
    ToolGroupSet: _set_tool_group,
    Approved: lambda k, e: pins.approve(k, e.mount, e.tools),
}
