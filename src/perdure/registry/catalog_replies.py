"""What the replies of a tiered catalog mean: its capabilities, the next page, texts. Read tolerantly, flags strictly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.registry.fetching import Reply, TornReply
from perdure.registry.official.records import text
from perdure.registry.refs import Capabilities

SERVERS: Final = "mcp-servers"


def read_capabilities(reply: Reply) -> Capabilities:
    found = reply.json()
    if not isinstance(found, dict) or not any(key == "tier" or key.startswith("supports_") for key in found):
        raise TornReply(f"{reply.address.shown} did not answer with its capabilities")
    tier = found.get("tier")
    writes = isinstance(tier, int) and not isinstance(tier, bool) and tier >= 2

    def flag(name: str, usual: bool = False) -> bool:
        return found[name] is True if name in found else usual

    return Capabilities(
        supports_install=flag("supports_install", writes),
        supports_uninstall=flag("supports_uninstall", writes),
        supports_capability_handshake=True,
        supports_audit=flag("supports_audit"),
        durable=flag("durable"),
        supports_canonical_export=flag("supports_canonical_export"),
    )


def next_cursor(found: Mapping[str, Any]) -> str:
    metadata = found.get("metadata")
    places = (found, metadata) if isinstance(metadata, dict) else (found,)
    for place in places:
        for key in ("nextCursor", "next_cursor"):
            if isinstance(place.get(key), str) and place[key]:
                return str(place[key])
    return ""


def texts(found: object) -> tuple[str, ...]:
    return tuple(text(one) for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def ago(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
