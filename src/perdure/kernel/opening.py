"""The private handshake with a new generation: find its era, open it, learn its whole catalog.

Nothing of it reaches the client. A server is asked in one era, and once in the other where it refuses or stays silent:

    first asked          then, after any error or `era_s` of silence
    initialize           server/discover
    server/discover      initialize

The era that worked is kept with the catalog and is the first one next time. A server of unknown era is asked with
`initialize`, which every handshake server answers; `modern_first` turns that round. What answers first opens it.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from perdure.kernel import mounts, recovery, rollout
from perdure.kernel.cache_hints import join_hints, read_hint
from perdure.kernel.context import Context
from perdure.kernel.state import (
    Cataloguing,
    ChildCatalog,
    Draining,
    ForDiscover,
    ForInitialize,
    ForList,
    Link,
    Live,
    Opening,
    Preparing,
    Purpose,
    Route,
    Starting,
)
from perdure.protocol import eras
from perdure.protocol.faults import Fault
from perdure.protocol.frames import (
    METHOD_NOT_FOUND,
    Members,
    Response,
    encode_members,
    encode_notification,
    encode_request,
    members,
)

_encode = msgspec.json.encode
_FIELD = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}


class _Opened(msgspec.Struct):
    protocolVersion: str
    capabilities: Raw
    serverInfo: Raw
    instructions: str | None = None


class _Discovered(msgspec.Struct):
    supportedVersions: list[str]
    capabilities: Raw
    instructions: str | None = None


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Versions(msgspec.Struct):
    supported: list[str] = []


class _VersionRefusal(msgspec.Struct):
    code: int = 0
    data: _Versions = msgspec.field(default_factory=_Versions)


def ask(k: Context, link: Link, method: str, params: Members, purpose: Purpose) -> int:
    """A request of the host's own to a child."""
    identity = k.mint()
    k.state.routes[identity] = Route(link.mount, link.generation, purpose)
    if link.era == "modern":
        params = {**params, "_meta": encode_members(envelope(k))}
    k.to_child(link, encode_request(identity, method, encode_members(params) if params else None))
    return identity


def envelope(k: Context) -> Members:
    """The `_meta` that a 2026 server needs on every request."""
    session = k.state.session
    found = {
        eras.META_VERSION: Raw(_encode(eras.LATEST_MODERN)),
        eras.META_CLIENT: Raw(session.client_info),
        eras.META_CAPABILITIES: Raw(session.capabilities),
    }
    if session.log_level:
        found[eras.META_LOG_LEVEL] = Raw(_encode(session.log_level))
    return found


def begin(k: Context, link: Link) -> None:
    first = _first_era(k, link)
    wait_s = min(k.limits.era_s, k.specs[link.mount].startup_s / 2)
    link.stage = Opening(first, k.now + wait_s)
    _ask_in(k, link, first)


def _first_era(k: Context, link: Link) -> eras.Era:
    spec, mount = k.specs[link.mount], k.state.mounts[link.mount]
    if spec.builtin:
        return "handshake"
    known: eras.Era = "modern" if spec.modern_first else "handshake"
    if mount.catalog is not None:
        known = mount.catalog.era
    # One that was lost twice before it served may be of those that break on a request they do not know. It may
    # also fail for another reason, so each era has its turn.
    failed = mount.unproductive + mount.opened
    return known if failed < 2 or failed % 2 else _other(known)


def _other(era: eras.Era) -> eras.Era:
    return "modern" if era == "handshake" else "handshake"


def _ask_in(k: Context, link: Link, era: eras.Era) -> None:
    link.era = era
    if era == "modern":
        ask(k, link, "server/discover", {}, ForDiscover())
        return
    session = k.state.session
    params: Members = {
        "protocolVersion": Raw(_encode(session.version or eras.LATEST_HANDSHAKE)),
        "capabilities": Raw(session.capabilities),
        "clientInfo": Raw(session.client_info),
    }
    ask(k, link, "initialize", params, ForInitialize())


def timers(link: Link) -> list[float]:
    return [link.stage.until] if isinstance(link.stage, Opening) and link.stage.until is not None else []


def tick(k: Context, link: Link) -> None:
    """A server that stays silent may be waiting for a request of the other era."""
    if any(until <= k.now for until in timers(link)):
        assert isinstance(link.stage, Opening)
        _ask_in_other(k, link, link.stage)


def _ask_in_other(k: Context, link: Link, stage: Opening) -> None:
    link.stage = msgspec.structs.replace(stage, until=None)
    _ask_in(k, link, _other(stage.first))


def lose_late(k: Context, link: Link) -> None:
    """The time for a start is over."""
    detail = f"not ready within {k.specs[link.mount].startup_s:g} s"
    if isinstance(link.stage, Opening):
        waiting = [f"{method} was not answered" for method in _handshake_routes(k, link).values()]
        said = (*link.stage.refusals, *waiting)
        detail += f": {'; '.join(said)}"
    recovery.lose(k, link, Fault("timeout", "startup_timeout", link.generation, detail), stop=True)


def _handshake_routes(k: Context, link: Link) -> dict[int, str]:
    """The handshake requests that this generation has not answered, by id."""
    names: dict[type[Purpose], str] = {ForInitialize: "initialize", ForDiscover: "server/discover"}
    return {
        identity: names[type(route.purpose)]
        for identity, route in k.state.routes.items()
        if (route.mount, route.generation) == (link.mount, link.generation) and type(route.purpose) in names
    }


def _opened(k: Context, link: Link, era: eras.Era, version: str, draft: ChildCatalog) -> None:
    """This era it is; what is still said in the other comes too late."""
    for identity in _handshake_routes(k, link):
        del k.state.routes[identity]
    link.era, link.version, link.draft = era, version, draft
    if era == "handshake":
        k.to_child(link, encode_notification("notifications/initialized", None))
    list_all(k, link)


def on_initialize(k: Context, link: Link, response: Response) -> None:
    try:
        opened = msgspec.json.decode(response.result or b"", type=_Opened)
        _capabilities(opened.capabilities)
        members(opened.serverInfo)
    except (msgspec.MsgspecError, ValueError):
        _refused(k, link, "initialize", response)
        return
    draft = ChildCatalog(bytes(opened.capabilities), bytes(opened.serverInfo), opened.instructions or "")
    _opened(k, link, "handshake", opened.protocolVersion, draft)


def on_discover(k: Context, link: Link, response: Response, *, is_retry: bool) -> None:
    if not is_retry and eras.LATEST_MODERN in _supported(response.error):
        link.era = "modern"
        ask(k, link, "server/discover", {}, ForDiscover(is_retry=True))
        return
    try:
        discovered = msgspec.json.decode(response.result or b"", type=_Discovered)
        _capabilities(discovered.capabilities)
        if eras.LATEST_MODERN not in discovered.supportedVersions:
            raise ValueError("no common version")
        info = members(members(response.result or b"{}").get("_meta", Raw(b"{}"))).get(eras.META_SERVER)
    except (msgspec.MsgspecError, ValueError):
        _refused(k, link, "server/discover", response)
        return
    info = info if info is not None else Raw(_encode({"name": link.mount, "version": "0"}))
    said = discovered.instructions or ""
    draft = ChildCatalog(bytes(discovered.capabilities), bytes(info), said, era="modern")
    _opened(k, link, "modern", eras.LATEST_MODERN, draft)


def _supported(error: Raw | None) -> list[str]:
    """The versions that a server names where it refuses the one it was asked in."""
    try:
        refusal = msgspec.json.decode(error or b"{}", type=_VersionRefusal)
    except msgspec.MsgspecError:
        return []
    return refusal.data.supported if refusal.code == eras.UNSUPPORTED_VERSION else []


def _refused(k: Context, link: Link, method: str, response: Response) -> None:
    """Not in this era: in the other one, if that was not tried yet or is not answered yet."""
    stage = link.stage
    assert isinstance(stage, Opening)
    stage = msgspec.structs.replace(stage, refusals=(*stage.refusals, f"{method} {_reason(response)}"))
    link.stage = stage
    if stage.until is not None:
        _ask_in_other(k, link, stage)
    elif not _handshake_routes(k, link):
        _refuse(k, link, "; ".join(stage.refusals))


def _reason(response: Response) -> str:
    if response.error is None:
        return "was not answered with a valid result"
    try:
        error = msgspec.json.decode(response.error, type=_Error)
    except msgspec.MsgspecError:
        return "was refused"
    return f"was refused with {error.code}: {' '.join(error.message.split())[:120]}"


def _capabilities(raw: Raw) -> None:
    members(raw)


def _refuse(k: Context, link: Link, detail: str) -> None:
    recovery.lose(k, link, Fault("protocol", "handshake_refused", link.generation, detail), stop=True)


def _code(error: Raw | None) -> int:
    try:
        return msgspec.json.decode(error or b"{}", type=_Error).code
    except msgspec.MsgspecError:
        return 0


def list_all(k: Context, link: Link) -> None:
    """Ask for every list the server says it has, side by side. Also for a live one whose lists changed."""
    if not isinstance(link.stage, Live | Draining):
        link.stage = Cataloguing()
    capabilities = members(link.draft.capabilities)
    known = link.draft
    link.draft = ChildCatalog(known.capabilities, known.server_info, known.instructions, era=known.era)
    link.listed_items = link.listed_bytes = 0
    link.listing = [method for method, (needs, _) in _FIELD.items() if needs in capabilities]
    for method in link.listing:
        ask(k, link, method, {}, ForList(method, 1))
    if not link.listing:
        _catalogued(k, link)


def on_page(k: Context, link: Link, method: str, pages: int, response: Response) -> None:
    cursor: Raw | None = None
    try:
        found = members(response.result or b"")
        items = msgspec.json.decode(found.get(_FIELD[method][1], Raw(b"[]")), type=list[Raw])
        if not _has_room(k, link, items):
            _refuse_catalog(k, link)
            return
        _collect(link.draft, method).extend(bytes(item) for item in items)
        cursor = found.get("nextCursor")
        if link.era == "modern":
            hint = read_hint(found)
            link.draft.hints[method] = join_hints(link.draft.hints.get(method, hint), hint)
    except (msgspec.MsgspecError, ValueError):
        k.quarantine("bad_list")
        if _code(response.error) != METHOD_NOT_FOUND:
            # One failed answer must not make a server's tools vanish.
            if method == "tools/list" and isinstance(link.stage, Cataloguing):
                _refuse(k, link, "tools/list was not answered with a valid result")
                return
            known = k.state.mounts[link.mount].catalog
            _collect(link.draft, method)[:] = _collect(known, method) if known is not None else []
    if cursor is not None and bytes(cursor) != b"null" and pages < k.limits.pages:
        ask(k, link, method, {"cursor": cursor}, ForList(method, pages + 1))
        return
    link.listing.remove(method)
    if not link.listing:
        _catalogued(k, link)


def _has_room(k: Context, link: Link, items: list[Raw]) -> bool:
    """Whether the whole catalog stays within its bounds with these items (law 8)."""
    link.listed_items += len(items)
    link.listed_bytes += sum(len(bytes(item)) for item in items)
    return link.listed_items <= k.limits.catalog_items and link.listed_bytes <= k.limits.catalog_bytes


def _refuse_catalog(k: Context, link: Link) -> None:
    """A new generation is refused. One that serves goes on with the catalog it has."""
    limits = k.limits
    detail = f"its lists hold more than {limits.catalog_items:,} items or {limits.catalog_bytes:,} bytes"
    fault = Fault(
        "resource", "catalog_too_large", link.generation, detail, "limits.catalog_items, limits.catalog_bytes"
    )
    if not isinstance(link.stage, Live | Draining):
        recovery.lose(k, link, fault, stop=True)
        return
    k.state.mounts[link.mount].last_fault = fault
    k.note("fault", mount=link.mount, generation=link.generation, **{"class": "resource"}, code=fault.code)
    for identity, route in list(k.state.routes.items()):
        if isinstance(route.purpose, ForList) and (route.mount, route.generation) == (
            link.mount,
            link.generation,
        ):
            del k.state.routes[identity]
    link.listing = []


def _collect(catalog: ChildCatalog, method: str) -> list[bytes]:
    match method:
        case "tools/list":
            return catalog.tools
        case "prompts/list":
            return catalog.prompts
        case "resources/list":
            return catalog.resources
        case _:
            return catalog.templates


def _catalogued(k: Context, link: Link) -> None:
    mount = k.state.mounts[link.mount]
    if link.relist:
        link.relist = False
        list_all(k, link)
    elif isinstance(mount.phase, Starting) and mount.phase.generation == link.generation:
        mounts.activate(k, mount, link)
    elif isinstance(mount.rollout, Preparing) and mount.rollout.generation == link.generation:
        rollout.prepared(k, mount, link)
    elif isinstance(link.stage, Live) and mount.serving_link() is link:
        mounts.adopt_catalog(k, mount, link.draft)
