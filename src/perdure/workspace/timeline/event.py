"""One event of a client's hook, in one form for all clients."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

EventKind = Literal[
    "session_start",
    "prompt",  # of a person: a turn begins
    "before_tool",
    "after_tool",
    "failed_tool",
    "batch_end",  # every call that the agent made has ended, also one that was not permitted
    "agent_stop",  # the main agent or a subagent has finished
    "session_end",
]


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook tells. Paths are as the client spells them, relative to `cwd` where they are relative."""

    client: str
    kind: EventKind
    session: str
    cwd: str
    project: str | None = None
    """The client's project folder, where it names one."""
    process: str | None = None
    """The client's process (`platform/process_tree.py`)."""
    host: str | None = None
    """The process of Perdure's host, where it sends the call to a mounted server; None for a hook of a client."""
    agent: str | None = None
    """The subagent; None is the client's main agent."""
    tool: str | None = None
    call_id: str | None = None
    command: str | None = None
    """The command line of a shell tool."""
    paths: tuple[str, ...] = ()
    """The files that the tool's input names."""
    may_change_files: bool = True
    """False for a tool that only reads."""
    own_tool: str | None = None
    """The name of Perdure's own tool, where the call is one."""
    response: Any = None
    """What the tool answered, of Perdure's own tools only: it names the rows that the call wrote."""


class HookAnswer(msgspec.Struct, frozen=True):
    """What a hook tells its client: why a call must not run, or what the agent is to know. Empty texts: nothing."""

    refusal: str = ""
    notice: str = ""
