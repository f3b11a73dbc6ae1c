"""Gemini CLI: hooks in `settings.json`, beside its servers; times in milliseconds.

Its events do not name the call: what belongs together is found by the tool and its input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from perdure.hooks.payload import Payload, new_event
from perdure.hooks.payload import reply as reply_in_json
from perdure.workspace.timeline.event import EventKind, HookAnswer, HookEvent

NAME: Final = "gemini"
TIMEOUT_MS: Final = 20_000
KINDS: Final[dict[str, EventKind]] = {
    "SessionStart": "session_start",
    "BeforeAgent": "prompt",
    "BeforeTool": "before_tool",
    "AfterTool": "after_tool",
    "AfterAgent": "agent_stop",
    "SessionEnd": "session_end",
}
# `invoke_agent` waits for a subagent.
READERS: Final = frozenset(
    {
        *("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"),
        *("google_web_search", "web_fetch", "get_internal_docs", "list_mcp_resources", "read_mcp_resource"),
        *("ask_user", "write_todos", "update_topic", "complete_task", "enter_plan_mode", "exit_plan_mode"),
        *("invoke_agent", "activate_skill", "list_background_processes", "read_background_output"),
    }
)  # fmt: skip
PRESET: Final[dict[str, Any]] = {}


def read_event(payload: Payload, environ: Mapping[str, str]) -> HookEvent | None:
    response = payload.get("tool_response")
    has_failed = isinstance(response, Mapping) and bool(response.get("error"))
    kinds: Mapping[str, EventKind] = {**KINDS, "AfterTool": "failed_tool"} if has_failed else KINDS
    payload = {**payload, "tool_use_id": _call_id(payload)}
    return new_event(NAME, payload, kinds, READERS, environ.get("GEMINI_PROJECT_DIR"))


def _call_id(payload: Payload) -> str:
    call = [payload.get("session_id"), payload.get("tool_name"), payload.get("tool_input")]
    return f"call-{hashlib.sha256(json.dumps(call, sort_keys=True).encode()).hexdigest()[:16]}"


def reply(payload: Payload, answer: HookAnswer) -> dict[str, Any] | None:
    if answer.refusal:
        return {"decision": "deny", "reason": answer.refusal}
    return reply_in_json(str(payload.get("hook_event_name")), answer)


def entries(command: str, address: str | None = None) -> dict[str, Any]:
    from perdure.hooks.claude_code import group

    hook = {"name": "perdure", "type": "command", "command": command, "timeout": TIMEOUT_MS}
    return {event: group(kind, hook, READERS) for event, kind in KINDS.items()}
