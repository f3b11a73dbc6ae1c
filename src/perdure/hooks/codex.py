"""Codex: hooks in `hooks.json` beside its `config.toml`, in the same form as Claude Code's.

A tool that failed to run sends no `PostToolUse`; a command with an exit code does. A subagent's first message arrives as
`UserPromptSubmit` with its `agent_id`. Codex runs a hook only after the user has trusted it (`/hooks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.hooks.payload import Payload, new_event
from perdure.hooks.payload import reply as reply_in_json
from perdure.workspace.timeline.event import EventKind, HookAnswer, HookEvent

NAME: Final = "codex"
TIMEOUT_S: Final = 20
LAST_TIMEOUT_S: Final = 3  # Codex allows no more at the end of a session
KINDS: Final[dict[str, EventKind]] = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "SubagentStop": "agent_stop",
    "Stop": "agent_stop",
    "SessionEnd": "session_end",
}
AGENT_TOOLS: Final = frozenset(
    {
        *("spawn_agent", "wait_agent", "wait", "send_input", "send_message", "followup_task"),
        *("interrupt_agent", "close_agent", "resume_agent", "list_agents"),
    }
)  # fmt: skip
READERS: Final = AGENT_TOOLS | frozenset(
    {
        *("read_file", "list_dir", "grep_files", "view_image", "web_search", "tool_search", "update_plan"),
        *("request_user_input", "request_permissions", "get_goal", "create_goal", "update_goal"),
        *("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"),
        *(f"multi_agent_v1{tool}" for tool in AGENT_TOOLS),  # the namespace is put before the name as it is
    }
)  # fmt: skip
PRESET: Final[dict[str, Any]] = {}


def read_event(payload: Payload, environ: Mapping[str, str]) -> HookEvent | None:
    return new_event(NAME, payload, KINDS, READERS)


def reply(payload: Payload, answer: HookAnswer) -> dict[str, Any] | None:
    return reply_in_json(str(payload.get("hook_event_name")), answer)


def entries(command: str, address: str | None = None) -> dict[str, Any]:
    """Every tool: the regular expressions of Codex cannot say `all but these`."""
    return {
        event: {"hooks": [{"type": "command", "command": command, "timeout": _timeout(kind)}]}
        for event, kind in KINDS.items()
    }


def _timeout(kind: EventKind) -> int:
    return LAST_TIMEOUT_S if kind == "session_end" else TIMEOUT_S
