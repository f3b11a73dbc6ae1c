"""Whether a server's tools are what they were: a hash of each one's description, schema and annotations is kept.

A change is reported. Where the entry says `pin`, a tool that is new or changed is held back until it is approved:
it is not listed, and a call to it is refused like one to a tool that does not exist.
"""

from __future__ import annotations

import msgspec

from perdure.kernel import streams
from perdure.kernel.catalog import CHANGED
from perdure.kernel.context import Context
from perdure.kernel.events import SaveTools
from perdure.kernel.state import ChildCatalog, Mount

_HASHED = ("title", "description", "inputSchema", "outputSchema", "annotations")


def compare(k: Context, mount: Mount, catalog: ChildCatalog) -> None:
    """A generation says what it offers: see whether that is what was accepted."""
    spec = k.specs[mount.name]
    if not spec.managed:
        return
    now = hashes(catalog)
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


def approve(k: Context, name: str, tools: dict[str, str]) -> None:
    """Those held tools that still are what was approved are offered from now on."""
    mount = k.state.mounts.get(name)
    if mount is None:
        return
    freed = [tool for tool, found in mount.held.items() if tools.get(tool) == found]
    if not freed:
        return
    mount.known = {**(mount.known or {}), **{tool: mount.held[tool] for tool in freed}}
    mount.held = {tool: found for tool, found in mount.held.items() if tool not in freed}
    mount.changed = []
    k.public.invalidate()
    k.note("tools_approved", mount=name, tools=",".join(freed)[:512])
    streams.announce(k, CHANGED["tools"], "tools")


def hashes(catalog: ChildCatalog) -> dict[str, str]:
    from hashlib import sha256

    found: dict[str, str] = {}
    for raw in catalog.tools:
        try:
            tool = msgspec.json.decode(raw)
            name = tool["name"]
        except (msgspec.MsgspecError, KeyError, TypeError):
            continue
        if isinstance(name, str):
            content = {key: tool.get(key) for key in _HASHED}
            found[name] = sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
    return found
