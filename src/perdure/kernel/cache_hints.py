"""Cache hints of a list for 2026 clients: the hints of all servers, joined.

The smallest time and the narrowest scope count. A handshake server says nothing, and what a server that does not serve now
will say is not known: with one of them a list is stale at once. The worker's tools stay as they are while it runs, unless
the session chooses which of them are listed: then its list of tools is its own, and stale at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from perdure.kernel.state import CacheHint, Disabled, Mount, Serving, State
from perdure.protocol.frames import Members
from perdure.protocol.mounts import MountSpec

STALE = CacheHint()
_MOST_MS = 2**53
_number = msgspec.json.Decoder(int)


def read_hint(result: Members) -> CacheHint:
    """What one page of a list says."""
    try:
        ttl_ms = _number.decode(result["ttlMs"]) if "ttlMs" in result else 0
    except msgspec.MsgspecError:
        ttl_ms = 0
    is_public = bytes(result.get("cacheScope", Raw(b""))) == b'"public"'
    return CacheHint(min(max(ttl_ms, 0), _MOST_MS), is_public)


def join_hints(one: CacheHint, other: CacheHint) -> CacheHint:
    return CacheHint(min(one.ttl_ms, other.ttl_ms), one.is_public and other.is_public)


def list_hint(state: State, specs: Mapping[str, MountSpec], method: str) -> Members:
    """The members of a list's result that say it."""
    hints = [
        _of_mount(mount, method)
        for mount in state.mounts.values()
        if not isinstance(mount.phase, Disabled)
        and not (specs[mount.name].builtin and mount.catalog is not None)
    ]
    if method == "tools/list" and state.session.groups:
        hints.append(STALE)
    hint = hints[0] if hints else STALE
    for other in hints[1:]:
        hint = join_hints(hint, other)
    scope = b'"public"' if hint.is_public else b'"private"'
    return {"ttlMs": Raw(str(hint.ttl_ms).encode()), "cacheScope": Raw(scope)}


def _of_mount(mount: Mount, method: str) -> CacheHint:
    if not isinstance(mount.phase, Serving) or mount.catalog is None:
        return STALE
    return mount.catalog.hints.get(method, STALE)
