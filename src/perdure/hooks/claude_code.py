"""Claude Code: hooks in `settings.json`, groups of hooks by event and by a pattern of tool names.

A failing call sends `PostToolUseFailure` instead of `PostToolUse`. A call that was not permitted sends neither: it is over
with its batch. A version before 2.1.101 skips a settings file with an event that it does not know, so there are no more
events here than needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perdure.hooks.payload import Payload, new_event
from perdure.hooks.payload import reply as reply_in_json
from perdure.workspace.timeline.event import EventKind, HookAnswer, HookEvent

NAME: Final = "claude-code"
TIMEOUT_S: Final = 20
KINDS: Final[dict[str, EventKind]] = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PostToolUseFailure": "failed_tool",
    "PostToolBatch": "batch_end",
    "SubagentStop": "agent_stop",
    "Stop": "agent_stop",
    "SessionEnd": "session_end",
}
# `Agent` and `Task` wait for a subagent, whose own calls are told one by one.
READERS: Final = frozenset(
    {
        *("Read", "NotebookRead", "Grep", "Glob", "LS", "LSP", "WebFetch", "WebSearch", "ToolSearch"),
        *("TodoWrite", "TodoRead", "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "TaskOutput", "TaskStop"),
        *("Agent", "Task", "AgentOutputTool", "SendMessage", "BashOutput", "KillShell", "KillBash"),
        *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "ReportFindings", "StructuredOutput"),
        *("CronList", "ScheduleWakeup", "ListMcpResourcesTool", "ReadMcpResourceTool", "WaitForMcpServers"),
    }
)  # fmt: skip
PRESET: Final[dict[str, Any]] = {}
# The token itself is never in a settings file. A server without one does not look at the header.
TOKEN: Final = {
    "headers": {"Authorization": "Bearer $PERDURE_TOKEN"},
    "allowedEnvVars": ["PERDURE_TOKEN"],
}


def read_event(payload: Payload, environ: Mapping[str, str]) -> HookEvent | None:
    return new_event(NAME, payload, KINDS, READERS, environ.get("CLAUDE_PROJECT_DIR"))


def reply(payload: Payload, answer: HookAnswer) -> dict[str, Any] | None:
    return reply_in_json(str(payload.get("hook_event_name")), answer)


def entries(command: str, address: str | None = None) -> dict[str, Any]:
    """The group for each event. The pattern saves a process for each tool that only reads."""
    return {event: group(kind, _hook(kind, command, address), READERS) for event, kind in KINDS.items()}


def _hook(kind: EventKind, command: str, address: str | None) -> dict[str, Any]:
    """The client posts no `SessionStart`. It does not wait for the end of a batch: there is nearly always nothing to
    do."""
    if address is not None and kind != "session_start":
        return {"type": "http", "url": address, "timeout": TIMEOUT_S, **TOKEN}
    hook = {"type": "command", "command": command, "timeout": TIMEOUT_S}
    return {**hook, "async": True} if kind == "batch_end" else hook


def group(kind: EventKind, hook: dict[str, Any], readers: frozenset[str]) -> dict[str, Any]:
    if not kind.endswith("_tool"):
        return {"hooks": [hook]}
    return {"matcher": f"^(?!(?:{'|'.join(sorted(readers))})$)", "hooks": [hook]}
