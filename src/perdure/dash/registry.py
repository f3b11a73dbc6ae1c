"""The registry's servers, the broken ones too. Commands, arguments and environments are not shown."""

from __future__ import annotations

import asyncio
import os

from perdure.dash.desk import Desk
from perdure.dash.html import table
from perdure.dash.layout import card
from perdure.dash.pieces import badge
from perdure.dash.tools import ToolFailed
from perdure.dash.untrusted import untrusted_part
from perdure.dash.web import Ask, Page, Part
from perdure.host.workspace_trust import registry_place, untrusted_files, workspace_registry
from perdure.registry.errors import RegistryError
from perdure.registry.locating import locate
from perdure.registry.opening import open_backend
from perdure.registry.refs import ServerRef


async def registry(desk: Desk, ask: Ask) -> Page:
    """Read when it is asked for: it may be a catalog on another machine."""
    settings = desk.sessions.settings
    waiting = workspace_registry(settings, os.environ)
    location = waiting or locate(settings.registry, None, os.environ)
    is_trusted = location == registry_place(settings, os.environ)
    try:
        refs = await asyncio.to_thread(lambda: open_backend(location, os.environ).list_servers())
    except RegistryError as error:
        raise ToolFailed(str(error)) from None
    rows = (
        (ref.name, badge(_state(ref, is_trusted)), ref.transport, ref.version, ref.error or ref.description)
        for ref in refs
    )
    heads = ("Server", "State", "Transport", "Version", "Description")
    body = table("Servers of the registry", heads, rows, "No MCP servers in the registry.")
    files = await asyncio.to_thread(untrusted_files, settings, os.environ)
    parts = (untrusted_part(files), Part("registry", card("Servers", body)))
    return Page("Registry", parts, is_live=False)


def _state(ref: ServerRef, is_trusted: bool) -> str:
    usual = "enabled" if is_trusted else "untrusted"
    return "error" if ref.error else usual if ref.enabled else "disabled"
