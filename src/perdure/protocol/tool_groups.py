"""The built-in tools by group, and the profiles: which groups a session lists when it opens.

A group that is not listed can be enabled in the session (tool `tools`), and its tools can be called by name at any time.
A test compares these names with the tools that there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Profile = Literal["core", "standard", "full"]
PROFILES: Final[tuple[Profile, ...]] = ("core", "standard", "full")
CORE: Final = "core"


class ToolGroup(msgspec.Struct, frozen=True):
    """Tools that are listed together. `about` says when an agent needs them."""

    name: str
    about: str
    tools: tuple[str, ...]


GROUPS: Final = (
    ToolGroup(
        CORE,
        "files with undo, shared values, handoffs",
        (
            "read",
            "safe_write",
            "edit",
            "transaction",
            "history",
            "diff",
            "undo",
            "restore",
            "get_state",
            "set_state",
            "handoff_read",
            "handoff_write",
            "health",
            "tools",
        ),
    ),
    ToolGroup("journal", "changes of all agents", ("journal_tail", "timeline", "rewind")),
    ToolGroup(
        "state",
        "list, delete, patch shared keys; their history",
        ("list_state", "delete_state", "state_patch", "state_history"),
    ),
    ToolGroup(
        "coordination",
        "locks, waits, run-once jobs, several keys",
        ("lease", "once", "state_wait", "state_txn"),
    ),
    ToolGroup("reservations", "files that only you may write", ("reserve",)),
    ToolGroup(
        "checkpoints",
        "save your own progress",
        ("checkpoint", "checkpoint_read", "checkpoint_list", "checkpoint_cleanup"),
    ),
    ToolGroup("check", "secrets and syntax, before a write", ("risk_score", "validate")),
    ToolGroup(
        "chunks",
        "files too large for one call",
        (
            "chunk_write",
            "chunk_append",
            "chunk_compose",
            "chunk_reset",
            "chunk_status",
            "chunk_preview",
        ),
    ),
    ToolGroup(
        "scratch",
        "secrets and raw logs, kept outside the project",
        ("scratch_put", "scratch_ref", "scratch_get", "scratch_drop"),
    ),
    ToolGroup("admin", "mounted servers, statistics", ("mounts", "telemetry", "analytics")),
    ToolGroup("compat", "older forms of edit and set_state", ("safe_replace", "force_set_state")),
)
GROUP_NAMES: Final = tuple(group.name for group in GROUPS)
GROUP_OF: Final = {tool: group.name for group in GROUPS for tool in group.tools}
SURFACES: Final = frozenset({"write", "state"})
STATE_TOOLS: Final = frozenset(
    {
        "get_state",
        "set_state",
        "force_set_state",
        *(tool for group in GROUPS if group.name in ("state", "coordination") for tool in group.tools),
    }
)

_LISTED: Final[dict[str, frozenset[str]]] = {
    "core": frozenset({CORE}),
    "standard": frozenset({CORE, "journal", "state", "coordination", "reservations", "checkpoints", "check"}),
    "full": frozenset(GROUP_NAMES),
}


def enabled_groups(profile: str, choices: Mapping[str, bool]) -> frozenset[str]:
    """The groups of a profile, with what a session enabled and disabled since."""
    listed = _LISTED[profile]
    return frozenset(n for n in GROUP_NAMES if choices.get(n, n in listed)) if choices else listed


def offered_tools(surfaces: tuple[str, ...], tools: tuple[str, ...]) -> tuple[str, ...]:
    """The tools of a worker that serves these surfaces, and only these tools where some are named. Empty: all."""
    if not tools and set(surfaces) == SURFACES:
        return ()
    named = {name.removeprefix("rw.") for name in tools} or GROUP_OF.keys()
    return tuple(
        tool
        for tool in GROUP_OF
        if tool in named and ("state" if tool in STATE_TOOLS else "write") in surfaces
    )


def nearest(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """The known name that is most like this one; empty where none is."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name[:64], known, 1, 0.6)), "")


def unknown_tool(names: tuple[str, ...]) -> str | None:
    """Why a list of tools cannot be meant: the first name in it that no built-in tool has."""
    for name in names:
        if name.removeprefix("rw.") not in GROUP_OF:
            near = nearest(name, GROUP_OF)
            return f"no tool {name}; did you mean {near}?" if near else f"no tool {name}"
    return None
