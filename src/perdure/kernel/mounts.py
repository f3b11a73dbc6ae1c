"""The machine of the mounts: each server from its first start to its last. Every transition is here.

| Mount.phase | event | next phase |
|---|---|---|
| Idle | wanted: the client arrived, or a call needs it | Starting |
| Starting | its generation is catalogued | Serving |
| Starting, Serving | its generation is lost | Starting, Waiting (backoff), Open (circuit) or Stopped (may not start again) |
| Serving | a lazy server has nothing to do | Idle |
| Waiting, Open | the time is over | Starting |
| any | restart | Starting |
| any | disable, or no longer trusted | Disabled |
| Disabled | enable | Starting |

| Link.stage (one generation) | event | next stage |
|---|---|---|
| Spawned | the process runs | Opening |
| Opening | refused, or silent for `era_s` | Opening, asked in the other era, once |
| Opening | refused in both eras, or late | (lost) |
| Opening | introduced | Cataloguing |
| Cataloguing | all lists came | Live, or it waits as a candidate |
| Live | a successor is fenced in | Draining |
| Draining | its last call is answered | (stopped) |

| Link.lists | event | next |
|---|---|---|
| Unlisted | introduced | Listing |
| Listing | all lists came | Listed; Listing again where they changed meanwhile |
| Listed | the server says that they changed | Listing while it serves; Outdated for a candidate that waits |
| Outdated | it serves | Listing |

| Mount.rollout | event | next |
|---|---|---|
| Settled | reload | Preparing: a candidate starts, unknown to the client |
| Preparing | the candidate has the same catalog | Settled: fence, activate |
| Preparing | the candidate has another catalog | Announced: the client is told |
| Announced | the client asks for a list, or the grace is over | Settled: fence, activate |
| Preparing, Announced | the candidate fails | Settled: the incumbent never lost its place |
| Preparing, Announced | the incumbent fails | Settled: the candidate takes its place |

A server is asked in one era, and once in the other where it refuses or stays silent; what answers first opens it. The era
that worked is kept with the catalog and is the first one next time. A server of unknown era is asked with `initialize`,
which every handshake server answers; `modern_first` turns that round.

As the registry changes, only what changed is touched: a new server is mounted, one that is gone is stopped, one that is
started differently is rolled over, and a change of rules (tools, replay, times) leaves the process alone.

A hash of each tool's description, schema and annotations is kept. A change is reported; where the entry says `pin`, a tool
that is new or changed is held back until it is approved: it is not listed, and a call to it is refused.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

from perdure.kernel import metrics
from perdure.kernel.cache_hints import join_hints, read_hint
from perdure.kernel.catalog import CHANGED, changes, dump_catalog, tool_hashes
from perdure.kernel.child_handshake import (
    FIELD_OF,
    Introduction,
    error_code,
    items_of,
    read_discover,
    read_initialize,
    refusal_reason,
    supported_versions,
)
from perdure.kernel.child_requests import forget_requests, send_request
from perdure.kernel.context import Context
from perdure.kernel.events import (
    Approved,
    ChildBacklog,
    ChildLost,
    ChildStarted,
    SaveCatalog,
    SaveTools,
    Spawn,
    Stop,
    Throttle,
)
from perdure.kernel.internal_events import (
    CatalogSettled,
    GenerationAlive,
    GenerationLost,
    GenerationRetired,
    GenerationServes,
    ListsChanged,
    MountUnavailable,
)
from perdure.kernel.state import (
    Announced,
    Cataloguing,
    ChildCatalog,
    Disabled,
    Draining,
    ForDiscover,
    ForInitialize,
    ForList,
    ForPing,
    Idle,
    Link,
    Listed,
    Listing,
    Live,
    Mount,
    New,
    Open,
    Opening,
    Outdated,
    Preparing,
    Purpose,
    Serving,
    Settled,
    Spawned,
    Starting,
    Stopped,
    Waiting,
)
from perdure.protocol import eras
from perdure.protocol.faults import PERMANENT, Fault
from perdure.protocol.frames import METHOD_NOT_FOUND, Members, Response, encode_notification, members
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile

_encode = msgspec.json.encode

NOTICE_MAX: Final = 300
NOTICES_MAX: Final = 5
ON_REQUEST: Final = frozenset({"restarted", "disabled", "unmounted"})
"""Codes of a generation that was ended because its owner wanted it."""


# --- start -----------------------------------------------------------------------------------------------


def start_all(k: Context) -> None:
    """Start every server that is eager or has no catalog yet."""
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
        _begin_handshake(k, link)


# --- handshake -------------------------------------------------------------------------------------------


def _begin_handshake(k: Context, link: Link) -> None:
    first = _first_era(k, link)
    wait_s = min(k.limits.era_s, k.specs[link.mount].startup_s / 2)
    link.stage = Opening(first, k.now + wait_s)
    _ask_in(k, link, first)


def _first_era(k: Context, link: Link) -> eras.Era:
    spec, mount = k.specs[link.mount], k.state.mounts[link.mount]
    if spec.builtin:
        return "handshake"
    likely: eras.Era = "modern" if spec.modern_first else "handshake"
    if mount.catalog is not None:
        likely = mount.catalog.era
    # One that was lost twice before it served may be of those that break on a request they do not know. It may
    # also fail for another reason, so each era has its turn.
    failed = mount.unproductive + mount.opened
    return likely if failed < 2 or failed % 2 else _other_era(likely)


def _other_era(era: eras.Era) -> eras.Era:
    return "modern" if era == "handshake" else "handshake"


def _ask_in(k: Context, link: Link, era: eras.Era) -> None:
    link.era = era
    if era == "modern":
        send_request(k, link, "server/discover", {}, ForDiscover())
        return
    session = k.state.session
    params: Members = {
        "protocolVersion": Raw(_encode(session.version or eras.LATEST_HANDSHAKE)),
        "capabilities": Raw(session.capabilities),
        "clientInfo": Raw(session.client_info),
    }
    send_request(k, link, "initialize", params, ForInitialize())


def _ask_in_other(k: Context, link: Link, stage: Opening) -> None:
    link.stage = msgspec.structs.replace(stage, until=None)
    _ask_in(k, link, _other_era(stage.first))


def _handshake_timers(link: Link) -> list[float]:
    return [link.stage.until] if isinstance(link.stage, Opening) and link.stage.until is not None else []


def _tick_handshake(k: Context, link: Link) -> None:
    """A server that stays silent may be waiting for a request of the other era."""
    if any(until <= k.now for until in _handshake_timers(link)):
        assert isinstance(link.stage, Opening)
        _ask_in_other(k, link, link.stage)


def lose_late(k: Context, link: Link) -> None:
    """The time for a start is over."""
    detail = f"not ready within {k.specs[link.mount].startup_s:g} s"
    if isinstance(link.stage, Opening):
        waiting = [f"{method} was not answered" for method in _handshake_routes(k, link).values()]
        reasons = (*link.stage.refusals, *waiting)
        detail += f": {'; '.join(reasons)}"
    lose(k, link, Fault("timeout", "startup_timeout", link.generation, detail), stop=True)


def _handshake_routes(k: Context, link: Link) -> dict[int, str]:
    """The handshake requests that this generation has not answered, by id."""
    names: dict[type[Purpose], str] = {ForInitialize: "initialize", ForDiscover: "server/discover"}
    return {
        identity: names[type(route.purpose)]
        for identity, route in k.state.routes.items()
        if (route.mount, route.generation) == (link.mount, link.generation) and type(route.purpose) in names
    }


def on_initialize(k: Context, link: Link, response: Response) -> None:
    introduction = read_initialize(response)
    if introduction is None:
        _try_other_era(k, link, "initialize", response)
    else:
        _open(k, link, introduction)


def on_discover(k: Context, link: Link, response: Response, *, is_retry: bool) -> None:
    if not is_retry and eras.LATEST_MODERN in supported_versions(response.error):
        link.era = "modern"
        send_request(k, link, "server/discover", {}, ForDiscover(is_retry=True))
        return
    introduction = read_discover(response, link.mount)
    if introduction is None:
        _try_other_era(k, link, "server/discover", response)
    else:
        _open(k, link, introduction)


def _open(k: Context, link: Link, introduction: Introduction) -> None:
    """This era it is; what is still said in the other comes too late."""
    for identity in _handshake_routes(k, link):
        del k.state.routes[identity]
    link.era, link.version, link.catalog = introduction.era, introduction.version, introduction.catalog
    if link.era == "handshake":
        k.to_child(link, encode_notification("notifications/initialized", None))
    list_catalog(k, link)


def _try_other_era(k: Context, link: Link, method: str, response: Response) -> None:
    """Not in this era: in the other one, if that was not tried yet or is not answered yet."""
    stage = link.stage
    assert isinstance(stage, Opening)
    stage = msgspec.structs.replace(stage, refusals=(*stage.refusals, f"{method} {refusal_reason(response)}"))
    link.stage = stage
    if stage.until is not None:
        _ask_in_other(k, link, stage)
    elif not _handshake_routes(k, link):
        _refuse_handshake(k, link, "; ".join(stage.refusals))


def _refuse_handshake(k: Context, link: Link, detail: str) -> None:
    lose(k, link, Fault("protocol", "handshake_refused", link.generation, detail), stop=True)


# --- catalog ---------------------------------------------------------------------------------------------


def list_catalog(k: Context, link: Link) -> None:
    """Ask for every list the server says it has, side by side. Also for a live one whose lists changed."""
    if not isinstance(link.stage, Live | Draining):
        link.stage = Cataloguing()
    head = link.catalog
    capabilities = members(head.capabilities)
    pending = tuple(method for method, (needs, _) in FIELD_OF.items() if needs in capabilities)
    draft = ChildCatalog(head.capabilities, head.server_info, head.instructions, era=head.era)
    link.lists = Listing(pending, draft)
    for method in pending:
        send_request(k, link, method, {}, ForList(method, 1))
    if not pending:
        _catalogued(k, link, link.lists)


def on_lists_changed(k: Context, link: Link) -> None:
    """The server's lists changed: learn them first, then tell the client, so that it never sees the old ones."""
    match link.lists, link.stage:
        case Listing(), _:
            link.lists = msgspec.structs.replace(link.lists, is_outdated=True)
        case Listed(), Live():
            list_catalog(k, link)
        case Listed(), Cataloguing():
            link.lists = Outdated()  # a candidate that was announced
        case _:
            pass  # not asked for yet, or not wanted any more


def on_page(k: Context, link: Link, method: str, pages: int, response: Response) -> None:
    assert isinstance(link.lists, Listing)
    draft = link.lists.draft
    cursor: Raw | None = None
    try:
        page = members(response.result or b"")
        items = msgspec.json.decode(page.get(FIELD_OF[method][1], Raw(b"[]")), type=list[Raw])
        if not _has_room(k, link, link.lists, items):
            _refuse_catalog(k, link)
            return
        items_of(draft, method).extend(bytes(item) for item in items)
        cursor = page.get("nextCursor")
        if link.era == "modern":
            hint = read_hint(page)
            draft.hints[method] = join_hints(draft.hints.get(method, hint), hint)
    except (msgspec.MsgspecError, ValueError):
        k.quarantine("bad_list")
        if error_code(response.error) != METHOD_NOT_FOUND:
            # One failed answer must not make a server's tools vanish.
            if method == "tools/list" and isinstance(link.stage, Cataloguing):
                _refuse_handshake(k, link, "tools/list was not answered with a valid result")
                return
            old = k.state.mounts[link.mount].catalog
            items_of(draft, method)[:] = items_of(old, method) if old is not None else []
    if cursor is not None and bytes(cursor) != b"null" and pages < k.limits.pages:
        send_request(k, link, method, {"cursor": cursor}, ForList(method, pages + 1))
        return
    pending = tuple(other for other in link.lists.pending if other != method)
    link.lists = msgspec.structs.replace(link.lists, pending=pending)
    if not pending:
        _catalogued(k, link, link.lists)


def _has_room(k: Context, link: Link, listing: Listing, items: list[Raw]) -> bool:
    """Whether the whole catalog stays within its bounds with these items (law 8)."""
    count = listing.items + len(items)
    size = listing.size + sum(len(bytes(item)) for item in items)
    link.lists = msgspec.structs.replace(listing, items=count, size=size)
    return count <= k.limits.catalog_items and size <= k.limits.catalog_bytes


def _refuse_catalog(k: Context, link: Link) -> None:
    """A new generation is refused. One that serves goes on with the catalog it has."""
    limits = k.limits
    detail = f"its lists hold more than {limits.catalog_items:,} items or {limits.catalog_bytes:,} bytes"
    fault = Fault(
        "resource", "catalog_too_large", link.generation, detail, "limits.catalog_items, limits.catalog_bytes"
    )
    if not isinstance(link.stage, Live | Draining):
        lose(k, link, fault, stop=True)
        return
    k.state.mounts[link.mount].last_fault = fault
    k.note("fault", mount=link.mount, generation=link.generation, **{"class": "resource"}, code=fault.code)
    for identity, route in list(k.state.routes.items()):
        is_own = (route.mount, route.generation) == (link.mount, link.generation)
        if is_own and isinstance(route.purpose, ForList):
            del k.state.routes[identity]
    link.lists = Listed()


def _catalogued(k: Context, link: Link, listing: Listing) -> None:
    mount = k.state.mounts[link.mount]
    if listing.is_outdated:
        list_catalog(k, link)
        return
    link.catalog, link.lists = listing.draft, Listed()
    if isinstance(mount.phase, Starting) and mount.phase.generation == link.generation:
        activate(k, mount, link)
    elif isinstance(mount.rollout, Preparing) and mount.rollout.generation == link.generation:
        _announce_candidate(k, mount, link)
    elif isinstance(link.stage, Live) and mount.serving_link() is link:
        adopt_catalog(k, mount, link.catalog)


def adopt_catalog(k: Context, mount: Mount, new: ChildCatalog) -> None:
    old = mount.catalog
    _compare_tools(k, mount, new)
    mount.catalog = new
    if old != new:  # the same catalog as before needs no new list
        k.public.invalidate()
        k.out.append(SaveCatalog(mount.name, dump_catalog(new)))
    if mount.settled:
        k.emit(ListsChanged(changes(old, new)))
    mount.settled = True
    k.emit(CatalogSettled())


def _compare_tools(k: Context, mount: Mount, catalog: ChildCatalog) -> None:
    """A generation says what it offers: see whether that is what was accepted."""
    spec = k.specs[mount.name]
    if not spec.managed:
        return
    now = tool_hashes(catalog)
    before = mount.known
    differing = [] if before is None else [tool for tool, found in now.items() if before.get(tool) != found]
    held = {tool: now[tool] for tool in differing} if spec.pin else {}
    # A tool that is gone stays known: it must not come back as another one unnoticed.
    known = {**(before or {}), **{tool: found for tool, found in now.items() if tool not in held}}
    if differing:
        mount.changed = differing
        k.note("tools_changed", mount=mount.name, tools=",".join(differing)[:512], held=bool(held))
    if (known, held) != (before, mount.held):
        mount.known, mount.held = known, held
        k.public.invalidate()
        k.out.append(SaveTools(mount.name, known, held))


def approve_tools(k: Context, event: Approved) -> None:
    """Those held tools that still are what was approved are offered from now on."""
    mount = k.state.mounts.get(event.mount)
    if mount is None:
        return
    freed = [tool for tool, digest in mount.held.items() if event.tools.get(tool) == digest]
    if not freed:
        return
    mount.known = {**(mount.known or {}), **{tool: mount.held[tool] for tool in freed}}
    mount.held = {tool: digest for tool, digest in mount.held.items() if tool not in freed}
    mount.changed = []
    k.public.invalidate()
    k.note("tools_approved", mount=mount.name, tools=",".join(freed)[:512])
    k.emit(ListsChanged(["tools"]))


# --- serve -----------------------------------------------------------------------------------------------


def activate(k: Context, mount: Mount, link: Link) -> None:
    """Make this generation the one that serves. The only place where authority changes (law 12)."""
    link.stage = Live()
    link.since = k.now
    mount.phase = Serving(link.generation)
    mount.used_at = k.now
    k.note("lifecycle", mount=mount.name, generation=link.generation, phase="serving")
    adopt_catalog(k, mount, link.catalog)
    k.emit(GenerationServes(link))
    if isinstance(link.lists, Outdated):
        list_catalog(k, link)


def on_notice(k: Context, link: Link, params: Members) -> None:
    """For `health`; a few of the newest."""
    text = msgspec.json.decode(params.get("text", Raw(b'""')))
    mount = k.state.mounts[link.mount]
    mount.notices = [*mount.notices, str(text)[:NOTICE_MAX]][-NOTICES_MAX:]


def on_backlog(k: Context, event: ChildBacklog) -> None:
    link = k.link(event.mount, event.generation)
    if link is not None:
        link.backlog = event.size


def throttle_if_chatty(k: Context, link: Link, count: int) -> None:
    """Keep a child that talks too much from taking the host's time: read it less often."""
    if k.now - link.window >= k.limits.window_s:
        link.window, link.unsolicited = k.now, 0
    link.unsolicited += count
    if link.unsolicited > k.limits.unsolicited_per_window:
        k.out.append(Throttle(link.mount, link.generation, link.window + k.limits.window_s))


def ping(k: Context, link: Link) -> None:
    """Ask whether the child lives at all: a slow call ends alone, a dead child is replaced."""
    if link.ping_until is not None:
        return
    method = "ping" if link.era == "handshake" else "server/discover"
    send_request(k, link, method, {}, ForPing())
    link.ping_until = k.now + k.limits.ping_s


def on_pong(k: Context, link: Link) -> None:
    link.ping_until = None
    k.emit(GenerationAlive(link))


# --- loss, restart and circuit ---------------------------------------------------------------------------


def on_lost(k: Context, event: ChildLost) -> None:
    link = k.link(event.mount, event.generation)
    if link is not None:
        mount = k.state.mounts[event.mount]
        mount.exit_code, mount.stderr = event.exit_code, event.stderr
        lose(k, link, event.fault, stop=False)


def lose(k: Context, link: Link, fault: Fault, *, stop: bool) -> None:
    """A generation is gone. Its work is settled first, then what comes in its place is decided."""
    mount = k.state.mounts[link.mount]
    affected = k.calls_on(link)
    if stop:
        _stop(k, mount, link, force=True)
    else:
        mount.links.pop(link.generation, None)
    forget_requests(k, link)
    if fault.code in ON_REQUEST:  # the calls are settled as after a fault, but nothing failed
        k.note(
            "lifecycle",
            mount=mount.name,
            generation=link.generation,
            phase=fault.code,
            calls=len(affected),
        )
    else:
        if stop:
            mount.exit_code, mount.stderr = None, ""
        mount.last_fault = fault
        metrics.faulted(k, fault, [call.method for call in affected])
        k.note(
            "fault",
            mount=mount.name,
            generation=link.generation,
            code=fault.code,
            calls=len(affected),
            **{"class": fault.fault_class},
            **_cause(k, mount, link, fault),
        )
    k.emit(GenerationLost(link, fault))
    _replace(k, mount, link, fault)


def _cause(k: Context, mount: Mount, link: Link, fault: Fault) -> dict[str, str | int | bool]:
    """What an event log may hold of a fault: its detail, unless it quotes the server, and which start it was."""
    fields: dict[str, str | int | bool] = {}
    if fault.detail and fault.fault_class in ("process", "resource"):
        fields["detail"] = fault.detail
    if not isinstance(link.stage, Live | Draining):
        fields["starting"] = True
        if fault.code not in PERMANENT:
            fields["attempt"], fields["attempts"] = mount.unproductive + 1, k.limits.unproductive_starts
    return fields


def _replace(k: Context, mount: Mount, link: Link, fault: Fault) -> None:
    match mount.rollout:
        case Preparing(generation) | Announced(generation) if generation == link.generation:
            keep_incumbent(k, mount, fault)
            return
        case _:
            pass
    match mount.phase:
        case Serving(generation) | Starting(generation) if generation == link.generation:
            if isinstance(mount.phase, Starting) and mount.catalog is None:
                settle(k, mount)
            if not promote_candidate(k, mount):
                plan_restart(k, mount, link)
        case _:
            pass  # a fenced generation: another one serves


def plan_restart(k: Context, mount: Mount, link: Link) -> None:
    """After the serving or starting generation was lost: at once, later, or not for now (law 11)."""
    if k.state.session.closing is not None:
        mount.phase = Idle()
        k.emit(MountUnavailable(mount))
        return
    last_fault = mount.last_fault
    if k.specs[mount.name].restart == "never" or (last_fault is not None and last_fault.code in PERMANENT):
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
    k.emit(MountUnavailable(mount))


def _stay_down(k: Context, mount: Mount) -> None:
    mount.phase = Stopped()
    k.note("lifecycle", mount=mount.name, generation=mount.generation, phase="stopped")
    settle(k, mount)
    k.emit(MountUnavailable(mount))


def settle(k: Context, mount: Mount) -> None:
    """No catalog will come soon: lists no longer wait for this mount."""
    mount.settled = True
    k.emit(CatalogSettled())


def _stop(k: Context, mount: Mount, link: Link, *, force: bool = False) -> None:
    mount.links.pop(link.generation, None)
    k.out.append(Stop(mount.name, link.generation, force))
    k.note("lifecycle", mount=mount.name, generation=link.generation, phase="stop")


def _retire(k: Context, link: Link) -> None:
    """Forget what was asked of, and by, a generation that holds no call."""
    forget_requests(k, link)
    k.emit(GenerationRetired(link))


def stop_drained(k: Context, mount: Mount) -> None:
    """A fenced generation leaves when its last call is answered."""
    for link in list(mount.links.values()):
        if isinstance(link.stage, Draining) and not k.calls_on(link) and not k.tasks_at(link):
            _retire(k, link)
            _stop(k, mount, link)


# --- rollout ---------------------------------------------------------------------------------------------


def begin_rollout(k: Context, mount: Mount) -> None:
    match mount.phase:
        case Serving():
            _abandon_rollout(k, mount, "superseded")
            candidate = spawn(k, mount)
            mount.rollout = Preparing(candidate.generation, k.now + k.specs[mount.name].startup_s)
            k.note("rollout", mount=mount.name, generation=candidate.generation, phase="preparing")
        case Waiting() | Open() | Stopped():
            mount.unproductive = mount.opened = 0
            start(k, mount)
        case _:
            pass  # not running: the next start runs what is installed then


def _announce_candidate(k: Context, mount: Mount, candidate: Link) -> None:
    """The candidate is initialized and catalogued, still unknown to the client: announce a changed catalog, else fence."""
    kinds = changes(mount.catalog, candidate.catalog)
    if not kinds or not k.is_client_listening():
        fence(k, mount, candidate)
        return
    mount.rollout = Announced(candidate.generation, k.now + k.limits.refresh_grace_s)
    k.note("rollout", mount=mount.name, generation=candidate.generation, phase="announced")
    k.emit(ListsChanged(kinds))


def on_refresh(k: Context) -> None:
    """The client asks for a list: it is about to see the new catalog, so the new generation serves it."""
    for mount in k.state.mounts.values():
        if isinstance(mount.rollout, Announced):
            fence(k, mount, mount.links[mount.rollout.generation])


def fence(k: Context, mount: Mount, candidate: Link) -> None:
    """Work accepted before stays where it is; everything after goes to the candidate."""
    incumbent = mount.serving_link()
    mount.rollout = Settled()
    _compare_tools(k, mount, candidate.catalog)
    if mount.catalog != candidate.catalog:
        mount.catalog = candidate.catalog  # announced already, or the client does not listen
        k.public.invalidate()
        k.out.append(SaveCatalog(mount.name, dump_catalog(candidate.catalog)))
    if incumbent is not None:
        incumbent.stage = Draining()
    k.note("rollout", mount=mount.name, generation=candidate.generation, phase="fenced")
    activate(k, mount, candidate)


def keep_incumbent(k: Context, mount: Mount, fault: Fault) -> None:
    """The candidate failed before the fence: the incumbent never lost its place."""
    was_announced = isinstance(mount.rollout, Announced)
    mount.rollout = Settled()
    mount.last_fault = Fault(
        "rollout", "candidate_refused", fault.generation, f"{fault.fault_class}/{fault.code}"
    )
    k.note("rollout", mount=mount.name, generation=fault.generation, phase="refused", code=fault.code)
    if was_announced and mount.catalog is not None:
        k.emit(ListsChanged(list(CHANGED)))  # what was announced did not come


def _abandon_rollout(k: Context, mount: Mount, code: str) -> None:
    """Give up a rollout that has not reached its fence."""
    match mount.rollout:
        case Preparing(generation) | Announced(generation):
            fault = Fault("rollout", code, generation)
            lose(k, mount.links[generation], fault, stop=True)
        case Settled():
            pass


def promote_candidate(k: Context, mount: Mount) -> bool:
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


def _tick_rollout(k: Context, mount: Mount) -> None:
    match mount.rollout:
        case Preparing(generation, deadline) if deadline <= k.now:
            lose_late(k, mount.links[generation])
        case Announced(generation, until) if until <= k.now:
            fence(k, mount, mount.links[generation])
        case _:
            pass


# --- orders ----------------------------------------------------------------------------------------------


def on_order(k: Context, name: str, action: str) -> None:
    mount = k.state.mounts.get(name)
    if mount is None:
        return
    match action:
        case "restart":
            restart(k, mount)
        case "enable":
            enable(k, mount)
        case _:
            disable(k, mount)


def restart(k: Context, mount: Mount) -> None:
    """Replace the process now. Work in flight is lost to it and treated by its replay class."""
    if isinstance(mount.phase, Disabled):
        enable(k, mount)
        return
    mount.unproductive = mount.opened = 0
    _drop_all(k, mount, "restarted")
    start(k, mount)


def disable(k: Context, mount: Mount) -> None:
    if isinstance(mount.phase, Disabled):
        return
    had = mount.catalog
    _drop_all(k, mount, "disabled")
    mount.phase = Disabled()
    k.emit(MountUnavailable(mount))
    settle(k, mount)
    _announce_difference(k, had)


def enable(k: Context, mount: Mount) -> None:
    """Nothing but the user's trust starts a server of a file that is not trusted."""
    if isinstance(mount.phase, Disabled) and not k.specs[mount.name].untrusted:
        mount.unproductive = mount.opened = 0
        start(k, mount)
        _announce_difference(k, mount.catalog)


def _announce_difference(k: Context, catalog: ChildCatalog | None) -> None:
    k.public.invalidate()
    k.emit(ListsChanged(changes(None, catalog or ChildCatalog())))


def _drop_all(k: Context, mount: Mount, code: str) -> None:
    _abandon_rollout(k, mount, code)
    for link in list(mount.links.values()):
        fault = Fault("process", code, link.generation, "on request")
        mount.phase = Idle()  # the caller decides what comes next, not the restart budget
        lose(k, link, fault, stop=True)


# --- the registry ----------------------------------------------------------------------------------------


def remount(k: Context, wanted: dict[str, MountSpec], untrusted: tuple[UntrustedFile, ...] = ()) -> None:
    k.untrusted = untrusted
    for name in [name for name, spec in k.specs.items() if spec.managed and name not in wanted]:
        _unmount(k, k.state.mounts[name])
    for name, spec in wanted.items():
        spec_before = k.specs.get(name)
        if spec_before is None:
            _mount(k, spec)
        elif (spec_before.managed or spec_before.builtin) and spec_before != spec:
            _change(k, k.state.mounts[name], spec_before, spec)


def _mount(k: Context, spec: MountSpec) -> None:
    k.specs[spec.name] = spec
    mount = Mount(name=spec.name, settled=True)  # what it comes to offer is news
    k.state.mounts[spec.name] = mount
    k.public.invalidate()
    k.note("lifecycle", mount=spec.name, generation=0, phase="mounted")
    if spec.untrusted:
        mount.phase = Disabled()
    elif not isinstance(k.state.session.phase, New):
        start(k, mount)


def _unmount(k: Context, mount: Mount) -> None:
    """Its calls are answered by their replay class first, so that nothing refers to it any more."""
    had = mount.catalog
    _drop_all(k, mount, "unmounted")
    mount.phase = Disabled()
    k.emit(MountUnavailable(mount))
    del k.state.mounts[mount.name]
    del k.specs[mount.name]
    k.note("lifecycle", mount=mount.name, generation=mount.generation, phase="unmounted")
    k.emit(CatalogSettled())
    _announce_difference(k, had)


def _change(k: Context, mount: Mount, before: MountSpec, spec: MountSpec) -> None:
    k.specs[mount.name] = spec
    k.public.invalidate()
    if spec.untrusted:
        disable(k, mount)
        mount.catalog = None
        k.public.invalidate()
    elif before.untrusted:
        mount.phase = Idle()
        if not isinstance(k.state.session.phase, New):
            start(k, mount)
    elif not before.starts_like(spec):
        if isinstance(mount.phase, Starting):
            restart(k, mount)
        elif not isinstance(mount.phase, Idle):
            begin_rollout(k, mount)
    elif (before.allow, before.deny, before.prefix) != (spec.allow, spec.deny, spec.prefix):
        k.emit(ListsChanged(["tools"]))


# --- time ------------------------------------------------------------------------------------------------


def timers(k: Context, mount: Mount) -> list[float]:
    times: list[float] = []
    if _has_no_timer(k, mount):
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
        if link.ping_until is not None:
            times.append(link.ping_until)
        times += _handshake_timers(link)
    return times


def _has_no_timer(k: Context, mount: Mount) -> bool:
    """Whether it serves and nothing is awaited of it: most are, most of the time."""
    if type(mount.phase) is not Serving or len(mount.links) != 1 or k.specs[mount.name].start == "lazy":
        return False
    [link] = mount.links.values()
    return link.ping_until is None


def tick(k: Context, mount: Mount) -> None:
    for link in list(mount.links.values()):
        if link.ping_until is not None and link.ping_until <= k.now:
            fault = Fault("timeout", "unresponsive", link.generation, "no answer to ping")
            lose(k, link, fault, stop=True)
        else:
            _tick_handshake(k, link)
    _tick_rollout(k, mount)
    match mount.phase:
        case Starting(generation, deadline) if deadline <= k.now:
            lose_late(k, mount.links[generation])
        case Waiting(until) | Open(until) if until <= k.now:
            if isinstance(mount.phase, Open):
                k.note("circuit", mount=mount.name, state="half_open")
            start(k, mount)
        case Serving(generation) if _is_idle(k, mount):
            link = mount.links[generation]
            mount.phase = Idle()
            _retire(k, link)
            _stop(k, mount, link)
        case _:
            pass


def _is_idle(k: Context, mount: Mount) -> bool:
    spec = k.specs[mount.name]
    if spec.start != "lazy" or k.now - mount.used_at < spec.idle_s:
        return False
    if not isinstance(mount.rollout, Settled):
        return False  # its candidate would take over from whatever is started meanwhile
    if k.wanted_uris(mount) or any(k.tasks_at(link) for link in mount.links.values()):
        return False  # someone waits for its updates, or for a task
    return not any(c.mount == mount.name for c in k.state.calls.values())
