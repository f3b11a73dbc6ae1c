"""The paths that agents and people have reserved. The owner of the dashboard may release each."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Final

from perdure.dash.components import button, card, code
from perdure.dash.context import PageContext
from perdure.dash.html import Row, table
from perdure.dash.times import when
from perdure.dash.tool_client import ToolFailed
from perdure.dash.web import Ask, NotThere, Page, Part
from perdure.host.launch import own_command

HEADS: Final = ("Path", "Mode", "Client", "Agent", "Since", "Until", "Reason", "Actions")
EMPTY: Final = "No path is reserved. Agents reserve with the tool reserve, people with perdure reserve PATH."
COMMAND_S: Final = 30


async def reservations(context: PageContext, ask: Ask) -> Page:
    holders = (await context.tools.call("reserve", action="list"))["holders"]
    rows = (
        Row(
            f"{one['token']}-{one['path']}",
            (
                code(one["path"]),
                one["mode"],
                one["client"],
                one.get("agent", ""),
                when(one["since"]),
                when(one["until"]),
                one["reason"],
                button(
                    context,
                    "Release",
                    "/reservations/release",
                    [("token", str(one["token"]))],
                    said=f"Release reservation {one['token']} of {one['path']}",
                ),
            ),
        )
        for one in holders
    )
    body = card("Reserved paths", table("Reserved paths", HEADS, rows, EMPTY))
    return Page("Reservations", (Part("reservations", body),))


async def release(context: PageContext, form: Ask) -> str:
    """As `perdure release --force` does: a person decides."""
    token = form.get("token")
    if not token.isdigit():
        raise NotThere
    workspace = context.sessions.settings.workspaces[0]
    command = own_command("release", token, "--force", "--workspace", workspace, "--json")
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, timeout=COMMAND_S, check=False
    )
    if done.returncode:
        raise ToolFailed("the reservation could not be released")
    return "/reservations"
