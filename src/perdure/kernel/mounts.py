"""The life of a mount: generations are started, serve, are lost and come back within a budget.

Idle ──▶ Starting ──▶ Serving ──lost──▶ Starting (at once) | Waiting (backoff) | Open (circuit) | Stopped
             ▲                              │                    │                  │
             └──────────────────────────────┴────────────────────┘                  (until somebody asks)
"""

from __future__ import annotations

from perdure.kernel import (
    answering,
    asks,
    deadlines,
    ledger,
    opening,
    pins,
    recovery,
    rollout,
    streams,
    welcome,
)
from perdure.kernel.catalog import CHANGED, changes, dump_catalog
from perdure.kernel.context import Context
from perdure.kernel.events import (
    ChildBacklog,
    ChildFrame,
    ChildNoise,
    ChildStarted,
    SaveCatalog,
    Spawn,
    Stop,
    Throttle,
)
from perdure.kernel.state import (
    Announced,
    ChildCatalog,
    Disabled,
    Draining,
    ForCall,
    ForDiscover,
    ForInitialize,
    ForList,
    ForListen,
    ForPing,
    ForProbe,
    ForSession,
    Idle,
    InFlight,
    Link,
    Live,
    Mount,
    Open,
    Preparing,
    Serving,
    Spawned,
    Starting,
    Stopped,
    Waiting,
)
from perdure.protocol.faults import PERMANENT, Fault
from perdure.protocol.frames import Malformed, Notification, Request, RequestId, Response, decode, salvage_id

# --- starting -------------------------------------------------------------------------------------


def start_all(k: Context) -> None:
    """The client has shown itself: start every server that is wanted or not yet catalogued."""
    for mount in k.state.mounts.values():
        wanted = k.specs[mount.name].start == "eager" or mount.catalog is None
        if isinstance(mount.phase, Idle) and wanted:
            start(k, mount)


def start(k: Context, mount: Mount) -> None:
    spec = k.specs[mount.name]
    link = spawn(k, mount)
    mount.phase = Starting(link.generation, k.now + spec.startup_s)


def spawn(k: Context, mount: Mount) -> Link:
    """A new generation. Numbers only grow, so what an old one still says can always be told apart."""
    mount.generation += 1
    link = Link(mount.name, mount.generation, since=k.now)
    mount.links[link.generation] = link
    k.out.append(Spawn(mount.name, link.generation, mount.unproductive > 0))
    k.note("lifecycle", mount=mount.name, generation=link.generation, phase="spawn")
    return link


def on_started(k: Context, event: ChildStarted) -> None:
    link = k.link(event.mount, event.generation)
    if link is not None and isinstance(link.stage, Spawned):
        link.pid = event.pid
        opening.begin(k, link)


def activate(k: Context, mount: Mount, link: Link) -> None:
    """Make this generation the one that serves. The only place where authority changes (law 12)."""
    link.stage = Live()
    link.since = k.now
    mount.phase = Serving(link.generation)
    mount.used_at = k.now
    k.note("lifecycle", mount=mount.name, generation=link.generation, phase="serving")
    adopt_catalog(k, mount, link.draft)
    streams.restore(k, link)
    asks.resume_deferred(k, link)
    recovery.resume(k, mount)
    if link.relist:
        link.relist = False
        opening.list_all(k, link)


def move_on(k: Context, mount: Mount) -> None:
    """After every event: whatever may go now goes, and a fenced generation that has finished leaves."""
    ledger.pump(k, mount)
    if len(mount.links) > 1:
        for link in list(mount.links.values()):
            retire_if_drained(k, link)


def adopt_catalog(k: Context, mount: Mount, new: ChildCatalog) -> None:
    old = mount.catalog
    pins.compare(k, mount, new)
    mount.catalog = new
    if old != new:  # a generation like the last one costs nobody a new list
        k.public.invalidate()
        k.out.append(SaveCatalog(mount.name, dump_catalog(new)))
    if mount.settled:
        for kind in changes(old, new):
            streams.announce(k, CHANGED[kind], kind)
    mount.settled = True
    welcome.flush_waiters(k)


# --- frames from a child ------------------------------------------------------------------------------


def on_frame(k: Context, event: ChildFrame) -> None:
    link = k.link(event.mount, event.generation)
    if link is None:
        k.quarantine("stale_generation")
        return
    match decode(event.frame):
        case Response() as response:
            on_response(k, link, response)
        case Request() as request:
            unsolicited(k, link, 1)
            asks.on_child_request(k, link, request)
        case Notification() as notification:
            unsolicited(k, link, 1)
            streams.on_child_notification(k, link, notification)
        case Malformed() as bad:
            _malformed(k, link, bad)


def _malformed(k: Context, link: Link, bad: Malformed) -> None:
    """Noise is counted. An answer that cannot be read still ends the call it was for (law 17)."""
    k.quarantine("child_malformed")
    unsolicited(k, link, 1)
    if bad.is_response:
        _unreadable(k, link, bad.id, Fault("protocol", "unreadable_answer", link.generation, bad.reason))


def _unreadable(k: Context, link: Link, identity: RequestId | None, fault: Fault) -> None:
    route = k.state.routes.get(identity) if type(identity) is int else None
    if route is None or (route.mount, route.generation) != (link.mount, link.generation):
        return
    assert type(identity) is int
    match route.purpose:
        case ForCall(seq):
            del k.state.routes[identity]
            recovery.unreadable(k, k.state.calls[seq], fault)
        case _:
            on_response(k, link, Response(identity, error=None))


def on_response(k: Context, link: Link, response: Response) -> None:
    route = k.state.routes.get(response.id) if type(response.id) is int else None
    if route is None or (route.mount, route.generation) != (link.mount, link.generation):
        k.quarantine("unexpected_answer")  # late, duplicate or foreign (law 5)
        unsolicited(k, link, 1)
        return
    assert type(response.id) is int
    del k.state.routes[response.id]
    match route.purpose:
        case ForCall(seq):
            link.productive = True
            answering.on_answer(k, link, k.state.calls[seq], response)
        case ForProbe(seq):
            recovery.on_probe_answer(k, link, k.state.calls[seq], response)
        case ForInitialize():
            opening.on_initialize(k, link, response)
        case ForDiscover(is_retry):
            opening.on_discover(k, link, response, is_retry=is_retry)
        case ForList(method, pages):
            opening.on_page(k, link, method, pages, response)
        case ForPing():
            link.pinged = 0
            deadlines.on_alive(k, link)
        case ForSession():
            pass
        case ForListen(is_open):
            streams.on_listen_ended(k, link, response, is_open=is_open)


def on_noise(k: Context, event: ChildNoise) -> None:
    link = k.link(event.mount, event.generation)
    if link is None:
        return
    if event.oversize:
        k.quarantine("child_oversize")
        fault = Fault("resource", "answer_too_large", link.generation, "the answer exceeds the frame limit")
        if _begins_as_answer(event.head):
            _unreadable(k, link, salvage_id(event.head, event.tail), fault)
    else:
        k.quarantine("child_noise", event.lines)
    unsolicited(k, link, event.lines)


def _begins_as_answer(head: bytes) -> bool:
    """Whether a frame cut short is an answer of the child's and not a request with an id of its own."""
    named = head.find(b'"method"')
    return named < 0 or any(0 <= head.find(member) < named for member in (b'"result"', b'"error"'))


def on_backlog(k: Context, event: ChildBacklog) -> None:
    link = k.link(event.mount, event.generation)
    if link is not None:
        link.backlog = event.size


def unsolicited(k: Context, link: Link, count: int) -> None:
    """Keep a child that talks too much from taking the host's time: read it less often."""
    if k.now - link.window >= k.limits.window_s:
        link.window, link.unsolicited = k.now, 0
    link.unsolicited += count
    if link.unsolicited > k.limits.unsolicited_per_window:
        k.out.append(Throttle(link.mount, link.generation, link.window + k.limits.window_s))


# --- coming back ------------------------------------------------------------------------------------------


def plan_restart(k: Context, mount: Mount, link: Link) -> None:
    """After the serving or starting generation was lost: at once, later, or not for now (law 11)."""
    if k.state.session.closing is not None:
        mount.phase = Idle()
        recovery.give_up_waiting(k, mount)
        return
    known = mount.last_fault
    if k.specs[mount.name].restart == "never" or (known is not None and known.code in PERMANENT):
        _stay_down(k, mount)
        return
    if link.productive or (isinstance(link.stage, Live) and k.now - link.since >= k.limits.settled_s):
        mount.unproductive = 0
        mount.opened = 0
    else:
        mount.unproductive += 1
    mount.restarts += 1
    mount.recent = [t for t in mount.recent if t > k.now - 60.0] + [k.now]
    if mount.unproductive >= k.limits.unproductive_starts:
        open_circuit(k, mount)
        return
    wait = 0.0
    if mount.unproductive > 1:
        wait = min(k.limits.backoff_max_s, k.limits.backoff_s * _doubled(mount.unproductive - 2))
        wait *= 0.5 + k.random() / 2
    if len(mount.recent) > k.limits.restarts_per_minute:
        wait = max(wait, 60.0 / k.limits.restarts_per_minute)
    if wait > 0:
        mount.phase = Waiting(k.now + wait)
    else:
        start(k, mount)


def _doubled(times: int) -> float:
    """A power of two that stays a number, however long a server has been failing."""
    return 2.0 ** min(times, 64)


def open_circuit(k: Context, mount: Mount) -> None:
    wait = min(k.limits.circuit_max_s, k.limits.circuit_s * _doubled(mount.opened))
    mount.opened += 1
    mount.unproductive = k.limits.unproductive_starts - 1  # half-open: one more failure opens it again
    mount.phase = Open(k.now + wait)
    k.note("circuit", mount=mount.name, state="open", for_s=round(wait, 3))
    settle(k, mount)
    recovery.give_up_waiting(k, mount)


def _stay_down(k: Context, mount: Mount) -> None:
    mount.phase = Stopped()
    k.note("lifecycle", mount=mount.name, generation=mount.generation, phase="stopped")
    settle(k, mount)
    recovery.give_up_waiting(k, mount)


def settle(k: Context, mount: Mount) -> None:
    """No catalog will come soon: lists no longer wait for this mount."""
    mount.settled = True
    welcome.flush_waiters(k)


def stop(k: Context, mount: Mount, link: Link, *, force: bool = False) -> None:
    mount.links.pop(link.generation, None)
    k.out.append(Stop(mount.name, link.generation, force))
    k.note("lifecycle", mount=mount.name, generation=link.generation, phase="stop")


def retire_if_drained(k: Context, link: Link) -> None:
    """A fenced generation leaves when its last call is answered."""
    if not isinstance(link.stage, Draining):
        return
    if not any(recovery.is_on(call, link) for call in k.state.calls.values()):
        recovery.release(k, link)
        stop(k, k.state.mounts[link.mount], link)


# --- by hand ------------------------------------------------------------------------------------------------


def restart(k: Context, mount: Mount) -> None:
    """Replace the process now. Work in flight is lost to it and treated by its replay class."""
    if isinstance(mount.phase, Disabled):
        enable(k, mount)
        return
    mount.unproductive = mount.opened = 0
    drop_all(k, mount, "restarted")
    start(k, mount)


def disable(k: Context, mount: Mount) -> None:
    if isinstance(mount.phase, Disabled):
        return
    had = mount.catalog
    drop_all(k, mount, "disabled")
    mount.phase = Disabled()
    recovery.give_up_waiting(k, mount)
    settle(k, mount)
    announce_difference(k, had)


def enable(k: Context, mount: Mount) -> None:
    """Nothing but the user's trust starts a server of a file that is not trusted."""
    if isinstance(mount.phase, Disabled) and not k.specs[mount.name].untrusted:
        mount.unproductive = mount.opened = 0
        start(k, mount)
        announce_difference(k, mount.catalog)


def announce_difference(k: Context, catalog: ChildCatalog | None) -> None:
    k.public.invalidate()
    for kind in changes(None, catalog or ChildCatalog()):
        streams.announce(k, CHANGED[kind], kind)


def drop_all(k: Context, mount: Mount, code: str) -> None:
    rollout.abandon(k, mount, code)
    for link in list(mount.links.values()):
        fault = Fault("process", code, link.generation, "on request")
        mount.phase = Idle()  # the caller decides what comes next, not the restart budget
        recovery.lose(k, link, fault, stop=True)


# --- time -----------------------------------------------------------------------------------------------------


def timers(k: Context, mount: Mount) -> list[float]:
    times: list[float] = []
    if _is_at_ease(k, mount):
        return times
    match mount.phase:
        case Starting(_, deadline):
            times.append(deadline)
        case Waiting(until) | Open(until):
            times.append(until)
        case Serving() if k.specs[mount.name].start == "lazy":
            times.append(max(mount.used_at + k.specs[mount.name].idle_s, k.now + 1.0))
        case _:
            pass
    match mount.rollout:
        case Preparing(_, until) | Announced(_, until):
            times.append(until)
        case _:
            pass
    for link in mount.links.values():
        route = k.state.routes.get(link.pinged)
        if route is not None and isinstance(route.purpose, ForPing):
            times.append(route.purpose.until)
        times += opening.timers(link)
    return times


def _is_at_ease(k: Context, mount: Mount) -> bool:
    """Whether it serves and nothing is awaited of it: most are, most of the time."""
    if type(mount.phase) is not Serving or len(mount.links) != 1 or k.specs[mount.name].start == "lazy":
        return False
    [link] = mount.links.values()
    return not link.pinged


def tick(k: Context, mount: Mount) -> None:
    for link in list(mount.links.values()):
        route = k.state.routes.get(link.pinged)
        if route is not None and isinstance(route.purpose, ForPing) and route.purpose.until <= k.now:
            fault = Fault("timeout", "unresponsive", link.generation, "no answer to ping")
            recovery.lose(k, link, fault, stop=True)
        else:
            opening.tick(k, link)
    rollout.tick(k, mount)
    match mount.phase:
        case Starting(generation, deadline) if deadline <= k.now:
            opening.lose_late(k, mount.links[generation])
        case Waiting(until) | Open(until) if until <= k.now:
            if isinstance(mount.phase, Open):
                k.note("circuit", mount=mount.name, state="half_open")
            start(k, mount)
        case Serving(generation) if _is_idle(k, mount):
            link = mount.links[generation]
            mount.phase = Idle()
            recovery.release(k, link)
            stop(k, mount, link)
        case _:
            pass


def _is_idle(k: Context, mount: Mount) -> bool:
    spec = k.specs[mount.name]
    if spec.start != "lazy" or k.now - mount.used_at < spec.idle_s:
        return False
    if streams.wanted_uris(k, mount):
        return False  # someone waits for its updates
    return not any(c.mount == mount.name for c in k.state.calls.values())


def in_flight(k: Context, link: Link) -> list[int]:
    """The calls this generation holds, oldest first."""
    return sorted(
        c.seq
        for c in k.state.calls.values()
        if c.mount == link.mount and isinstance(c.state, InFlight) and c.state.generation == link.generation
    )
