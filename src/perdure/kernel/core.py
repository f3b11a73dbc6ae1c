"""The kernel: one event in, its effects out, nothing else happens.

Four state machines decide; each has its states, its transition table and all its transitions in one module:

| machine | decides |
|---|---|
| calls | when a request is dispatched, and its one answer: accept, dispatch, answer, deadline, cancel, loss, probe |
| mounts | the life of a server: start, handshake, catalog, restart, circuit, rollout |
| client | the session of the client: era, handshake, lists; `subscriptions` has what the client wants to hear of |
| tasks | work that outlives its request, under handles of the host's own |

They never call each other: what one of them has to tell is an event of `internal_events`, and the table at the end of this
module says which machines hear it, in which order. Frames come in through `client_frames` (with `client_requests` and
`routing`) and `child_frames`, which find out what they mean and whom they concern. `server_requests` holds the questions of
servers to the client. `call_frames`, `task_frames`, `child_handshake`, `catalog` and `cache_hints` compute, and change
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.kernel import (
    calls,
    child_frames,
    client,
    client_frames,
    metrics,
    mounts,
    server_requests,
    snapshot,
    subscriptions,
    tasks,
)
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
from perdure.kernel.internal_events import (
    CallDetached,
    CatalogSettled,
    ClientArrived,
    ClientLeaves,
    ClientReady,
    DetachedCallEnded,
    GenerationAlive,
    GenerationLost,
    GenerationRetired,
    GenerationServes,
    InputAnswered,
    InputExpired,
    InputNeeded,
    ListRequested,
    ListsChanged,
    ListsDoubted,
    LivenessDoubted,
    MountUnavailable,
    RequestResumed,
    ServerNeeded,
    SessionCallSucceeded,
    TaskAnswered,
    TaskCancelled,
    TaskCreated,
    TaskEnded,
    TaskInputGiven,
    TaskQuestionsChanged,
    ToolGroupSet,
    WatchedTasksChanged,
)
from perdure.kernel.state import Invocation, Session


class Kernel(Context):
    """The one entrance to the rules: an event in, its effects out."""

    # --- the one entrance -------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in and return its effects, in order. Time never runs backwards in here."""
        self.now = max(self.now, now)
        self.out = []
        self.emit(event)
        for mount in self.state.mounts.values():
            if mount.queue:
                calls.dispatch_ready(self, mount)
            if len(mount.links) > 1:
                mounts.stop_drained(self, mount)
        self._finish()
        return self.out

    def start(self, now: float) -> list[Effect]:
        """Start the built-in worker, which does not depend on the client."""
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
        calls.take_up_lost(self, lost)
        mounts.start_all(self)
        return self.out

    def next_wake(self) -> float | None:
        """When the next Tick is due, or None."""
        times = [t for m in self.state.mounts.values() for t in mounts.timers(self, m)]
        times += calls.timers(self)
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
            client.answer_waiting(self)
            calls.end_all(self)
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


def _tick(k: Kernel, event: Tick) -> None:
    tasks.forget_expired(k)  # first: it makes room for calls that are due to become tasks
    for mount in k.state.mounts.values():
        mounts.tick(k, mount)
    calls.tick(k)
    client.tick(k)


def _reload(k: Kernel, event: Reload) -> None:
    for mount in k.state.mounts.values():
        mounts.begin_rollout(k, mount)


def _generation_serves(k: Kernel, event: GenerationServes) -> None:
    tasks.on_generation_serves(k, event.link)
    subscriptions.restore(k, event.link)
    server_requests.resume_deferred(k, event.link)
    calls.probe_held(k, k.state.mounts[event.link.mount])


def _generation_lost(k: Kernel, event: GenerationLost) -> None:
    server_requests.cancel_of(k, event.link)
    tasks.on_generation_lost(k, event.link)
    calls.on_generation_lost(k, event.link, event.fault)


def _generation_retired(k: Kernel, event: GenerationRetired) -> None:
    server_requests.cancel_of(k, event.link)
    tasks.on_generation_lost(k, event.link)


def _mount_unavailable(k: Kernel, event: MountUnavailable) -> None:
    tasks.on_mount_unavailable(k, event.mount)
    calls.give_up_waiting(k, event.mount)


_HANDLERS: Final[dict[type[Any], Callable[[Kernel, Any], None]]] = {
    # From the shell.
    ClientFrame: lambda k, e: client_frames.on_frame(k, e),
    ClientOversize: lambda k, e: client_frames.on_oversize(k, e),
    ClientClosed: lambda k, e: client.close(k, is_shutdown=False),
    Shutdown: lambda k, e: client.close(k, is_shutdown=True),
    ChildStarted: lambda k, e: mounts.on_started(k, e),
    ChildFrame: lambda k, e: child_frames.on_frame(k, e),
    ChildNoise: lambda k, e: child_frames.on_noise(k, e),
    ChildLost: lambda k, e: mounts.on_lost(k, e),
    ChildBacklog: lambda k, e: mounts.on_backlog(k, e),
    NotRecorded: lambda k, e: calls.on_not_recorded(k, e),
    Tick: _tick,
    Reload: _reload,
    Order: lambda k, e: mounts.on_order(k, e.mount, e.action),
    Remount: lambda k, e: mounts.remount(k, e.specs, e.untrusted),
    FileFaults: lambda k, e: metrics.found_in_files(k, e.source, e.faults),
    Approved: lambda k, e: mounts.approve_tools(k, e),
    # From one machine to the others.
    ServerNeeded: lambda k, e: mounts.start(k, e.mount),
    LivenessDoubted: lambda k, e: mounts.ping(k, e.link),
    SessionCallSucceeded: lambda k, e: subscriptions.on_session_call(k, e.link, e.call),
    GenerationServes: _generation_serves,
    GenerationLost: _generation_lost,
    GenerationRetired: _generation_retired,
    GenerationAlive: lambda k, e: calls.on_alive(k, e.link),
    MountUnavailable: _mount_unavailable,
    CatalogSettled: lambda k, e: client.flush_waiters(k),
    ListsChanged: lambda k, e: subscriptions.announce_lists(k, e.kinds),
    ListsDoubted: lambda k, e: mounts.on_lists_changed(k, e.link),
    ClientArrived: lambda k, e: mounts.start_all(k),
    ClientReady: lambda k, e: server_requests.on_client_ready(k),
    ListRequested: lambda k, e: mounts.on_refresh(k),
    ClientLeaves: lambda k, e: subscriptions.close_all(k),
    RequestResumed: lambda k, e: client_frames.resume(k, e.waiter),
    InputNeeded: lambda k, e: calls.park(k, e.call),
    InputAnswered: lambda k, e: calls.on_input_answer(k, e.identity, e.ask, e.response),
    InputExpired: lambda k, e: calls.on_input_expired(k, e.call),
    TaskCreated: lambda k, e: tasks.on_created(k, e),
    CallDetached: lambda k, e: tasks.on_detached(k, e),
    DetachedCallEnded: lambda k, e: tasks.on_call_ended(k, e),
    TaskQuestionsChanged: lambda k, e: tasks.on_questions_changed(k, e),
    TaskAnswered: lambda k, e: tasks.on_answered(k, e),
    TaskEnded: lambda k, e: calls.on_task_ended(k, e.task),
    TaskCancelled: lambda k, e: calls.cancel_detached(k, e.seq),
    TaskInputGiven: lambda k, e: calls.on_task_input(k, e.seq, e.answers),
    WatchedTasksChanged: lambda k, e: subscriptions.sync_all(k),
    ToolGroupSet: lambda k, e: client.set_tool_group(k, e.group, is_enabled=e.is_enabled),
}
