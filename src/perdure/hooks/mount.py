"""A call that Perdure's host sends to a mounted server: told by the host itself, not by a client's hook."""

from __future__ import annotations

from typing import Final

from perdure.hooks.payload import Payload, name, text
from perdure.hooks.tool_calls import MCP_READERS, command_line, named_files
from perdure.workspace.timeline.event import HookEvent

CLIENT: Final = "mount"
"""Stands for the client in a request of the host."""


def read_call(payload: Payload) -> HookEvent | None:
    client, session, tool = (name(payload, key) for key in ("client", "session", "tool"))
    cwd = text(payload, "cwd")
    if client is None or session is None or tool is None or cwd is None:
        return None
    return HookEvent(
        client=client,
        kind="before_tool" if payload.get("when") == "before" else "after_tool",
        session=session,
        cwd=cwd,
        process=text(payload, "process"),
        host=text(payload, "host") or "",
        tool=tool,
        call_id=name(payload, "call_id"),
        command=command_line(payload.get("arguments")),
        paths=named_files(payload.get("arguments")),
        may_change_files=tool.rpartition("__")[2] not in MCP_READERS,
    )
