"""The private handshake with a new generation: find its era, open it, learn its whole catalog.

Nothing of it reaches the client. `initialize` comes first because every handshake server answers it;
a 2026-only server refuses it with a code that says so, and is then asked with `server/discover`. Where the
client and the server are to speak the same era without translation, it is the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from perdure.kernel import mounts, recovery, rollout
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
from perdure.model import eras
from perdure.model.faults import Fault
from perdure.model.frames import (
    METHOD_NOT_FOUND,
    Members,
    Response,
    encode_members,
    encode_notification,
    encode_request,
    members,
)

if TYPE_CHECKING:
    from perdure.kernel.core import Kernel

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


class _ErrorCode(msgspec.Struct):
    code: int = 0


def ask(k: Kernel, link: Link, method: str, params: Members, purpose: Purpose) -> int:
    """A request of the host's own to a child."""
    identity = k.mint()
    k.state.routes[identity] = Route(link.mount, link.generation, purpose)
    if link.era == "modern":
        params = {**params, "_meta": encode_members(envelope(k))}
    k.to_child(link, encode_request(identity, method, encode_members(params) if params else None))
    return identity


def envelope(k: Kernel) -> Members:
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


def begin(k: Kernel, link: Link) -> None:
    link.stage = Opening()
    # One that was lost twice before it served may be of those that break on a request they do not know.
    if k.specs[link.mount].modern_first and k.state.mounts[link.mount].unproductive < 2:
        link.era = "modern"
        ask(k, link, "server/discover", {}, ForDiscover(first=True))
    else:
        _initialize(k, link)


def _initialize(k: Kernel, link: Link) -> None:
    link.era = "handshake"
    session = k.state.session
    params: Members = {
        "protocolVersion": Raw(_encode(session.version or eras.LATEST_HANDSHAKE)),
        "capabilities": Raw(session.capabilities),
        "clientInfo": Raw(session.client_info),
    }
    ask(k, link, "initialize", params, ForInitialize())


def on_initialize(k: Kernel, link: Link, response: Response) -> None:
    if response.error is not None and _code(response.error) in (eras.UNSUPPORTED_VERSION, METHOD_NOT_FOUND):
        link.era = "modern"
        ask(k, link, "server/discover", {}, ForDiscover())
        return
    try:
        opened = msgspec.json.decode(response.result or b"", type=_Opened)
        _capabilities(opened.capabilities)
        members(opened.serverInfo)
    except (msgspec.MsgspecError, ValueError):
        _refuse(k, link, "initialize was not answered with a valid result")
        return
    link.version = opened.protocolVersion
    link.draft = ChildCatalog(bytes(opened.capabilities), bytes(opened.serverInfo), opened.instructions or "")
    k.to_child(link, encode_notification("notifications/initialized", None))
    list_all(k, link)


def on_discover(k: Kernel, link: Link, response: Response, *, first: bool) -> None:
    if first and response.result is None:
        _initialize(k, link)
        return
    try:
        found = msgspec.json.decode(response.result or b"", type=_Discovered)
        _capabilities(found.capabilities)
        if eras.LATEST_MODERN not in found.supportedVersions:
            raise ValueError("no common version")
        info = members(members(response.result or b"{}").get("_meta", Raw(b"{}"))).get(eras.META_SERVER)
    except (msgspec.MsgspecError, ValueError):
        _refuse(k, link, "server/discover was not answered with a valid result")
        return
    link.version = eras.LATEST_MODERN
    info = info if info is not None else Raw(_encode({"name": link.mount, "version": "0"}))
    said = found.instructions or ""
    link.draft = ChildCatalog(bytes(found.capabilities), bytes(info), said, era="modern")
    list_all(k, link)


def _capabilities(raw: Raw) -> None:
    members(raw)


def _refuse(k: Kernel, link: Link, detail: str) -> None:
    recovery.lose(k, link, Fault("protocol", "handshake_refused", link.generation, detail), stop=True)


def _code(error: Raw | None) -> int:
    try:
        return msgspec.json.decode(error or b"{}", type=_ErrorCode).code
    except msgspec.MsgspecError:
        return 0


def list_all(k: Kernel, link: Link) -> None:
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


def on_page(k: Kernel, link: Link, method: str, pages: int, response: Response) -> None:
    cursor: Raw | None = None
    try:
        found = members(response.result or b"")
        items = msgspec.json.decode(found.get(_FIELD[method][1], Raw(b"[]")), type=list[Raw])
        if not _has_room(k, link, items):
            _refuse_catalog(k, link)
            return
        _collect(link.draft, method).extend(bytes(item) for item in items)
        cursor = found.get("nextCursor")
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


def _has_room(k: Kernel, link: Link, items: list[Raw]) -> bool:
    """Whether the whole catalog stays within its bounds with these items (law 8)."""
    link.listed_items += len(items)
    link.listed_bytes += sum(len(bytes(item)) for item in items)
    return link.listed_items <= k.limits.catalog_items and link.listed_bytes <= k.limits.catalog_bytes


def _refuse_catalog(k: Kernel, link: Link) -> None:
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


def _catalogued(k: Kernel, link: Link) -> None:
    mount = k.state.mounts[link.mount]
    if link.relist:
        link.relist = False
        list_all(k, link)
    elif isinstance(mount.phase, Starting) and mount.phase.generation == link.generation:
        mounts.activate(k, mount, link)
    elif isinstance(mount.rollout, Preparing) and mount.rollout.generation == link.generation:
        rollout.prepared(k, mount, link)
    elif isinstance(link.stage, Live) and mounts.serving_link(mount) is link:
        mounts.adopt_catalog(k, mount, link.draft)
