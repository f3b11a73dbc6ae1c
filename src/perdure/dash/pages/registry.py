"""The registry's servers, the broken ones too: which file lists them, which of them run, and switching one on or off."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from perdure.dash.components import badge, button, card, code, note, untrusted_part
from perdure.dash.context import PageContext, home_path
from perdure.dash.html import Markup, address, element, link, table
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.host.workspace_trust import is_inside, registry_place, untrusted_files, workspace_registry
from perdure.registry.backend import EditableBackend, ServerRef, open_backend
from perdure.registry.errors import RegistryError
from perdure.registry.location import locate
from perdure.registry.redaction import mask_url

HEADS: Final = ("Server", "State", "Transport", "Version", "Description", "Actions")


async def registry(context: PageContext, ask: Ask) -> Page:
    """Read when it is asked for: it may be a catalog on another machine."""
    location, is_trusted = _location(context)
    try:
        refs = await asyncio.to_thread(lambda: open_backend(location, os.environ).list_servers())
    except RegistryError as error:
        raise ToolFailed(str(error)) from None
    can_switch = is_trusted and _is_own_file(context, location)
    running = {row.name for row in context.servers()}
    rows = (
        (
            link(ref.name, "/mounts/server", {"name": ref.name}) if ref.name in running else ref.name,
            badge(_state(ref, is_trusted)),
            ref.transport,
            ref.version,
            ref.error or ref.description or "no description",
            _switch(context, ref) if can_switch and not ref.error else None,
        )
        for ref in refs
    )
    empty = "No MCP servers in the registry. Add one with perdure registry install NAME -- COMMAND."
    body = table("Servers of the registry", HEADS, rows, empty)
    files = await asyncio.to_thread(untrusted_files, context.sessions.settings, os.environ)
    where = element("p", "Listed in ", code(mask_url(location) if "://" in location else home_path(location)))
    done = ask.get("done")
    notice = (Part("notice", note(f"{ask.get('name')} was {done}.", kind="notice")),) if done in _DONE else ()
    hint = None if can_switch or not refs else note(_how_to_switch(context, location, is_trusted))
    parts = (*notice, untrusted_part(files), Part("registry", card("Servers", where, body, hint)))
    return Page("Registry", parts, is_live=False)


async def switch(context: PageContext, form: Ask) -> str:
    """Enable or disable an entry of the user's own registry file; running sessions follow."""
    name, action = form.get("name"), form.get("action")
    location, is_trusted = _location(context)
    if action not in ("enable", "disable") or not is_trusted or not _is_own_file(context, location):
        raise NotThere
    try:
        backend = open_backend(location, os.environ)
        if not isinstance(backend, EditableBackend):
            raise NotThere
        await asyncio.to_thread(backend.set_enabled, name, action == "enable")
    except RegistryError as error:
        raise ToolFailed(str(error)) from None
    return address("/registry", {"done": f"{action}d", "name": name})


_DONE: Final = ("enabled", "disabled")


def _location(context: PageContext) -> tuple[str, bool]:
    """The registry, and whether its servers may be started."""
    settings = context.sessions.settings
    waiting = workspace_registry(settings, os.environ)
    location = waiting or locate(settings.registry, None, os.environ)
    return location, location == registry_place(settings, os.environ)


def _is_own_file(context: PageContext, location: str) -> bool:
    """Not a catalog, and not a file of the workspace: a change of that would need the user's trust again."""
    return "://" not in location and not is_inside(context.sessions.settings.workspaces[0], location)


def _how_to_switch(context: PageContext, location: str, is_trusted: bool) -> str:
    if not is_trusted:
        return "Its servers are not started until the file is trusted."
    if "://" in location:
        return "This registry is on another machine: its servers are switched there."
    return "This file belongs to the workspace: perdure registry enable and disable change it, perdure trust confirms it."


def _switch(context: PageContext, ref: ServerRef) -> Markup:
    action = "disable" if ref.enabled else "enable"
    label = action.capitalize()
    fields = [("action", action), ("name", ref.name)]
    return button(context, label, "/registry/switch", fields, said=f"{label} {ref.name} in the registry")


def _state(ref: ServerRef, is_trusted: bool) -> str:
    usual = "enabled" if is_trusted else "untrusted"
    return "error" if ref.error else usual if ref.enabled else "disabled"
