"""Cursor: hooks in `hooks.json`, a flat list for each event. It can also load the hooks of Claude Code.

Loaded from there, an event has Claude's entry and Cursor's JSON. Where both files hold Perdure's entry, the one from
Claude's file is left to the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from perdure.hooks.payload import Payload, new_event, text
from perdure.workspace.timeline.event import EventKind, HookAnswer, HookEvent

NAME: Final = "cursor"
TIMEOUT_S: Final = 20
EVENTS: Final[dict[str, EventKind]] = {
    "sessionStart": "session_start",
    "beforeSubmitPrompt": "prompt",
    "preToolUse": "before_tool",
    "postToolUse": "after_tool",
    "postToolUseFailure": "failed_tool",
    "subagentStop": "agent_stop",
    "stop": "agent_stop",
    "sessionEnd": "session_end",
}
# Without regard to case: an entry of Claude Code may be called under either spelling.
KINDS: Final[dict[str, EventKind]] = {
    "userpromptsubmit": "prompt",
    **{event.lower(): kind for event, kind in EVENTS.items()},
}
READERS: Final = frozenset(
    {
        *("Read", "Grep", "Glob", "LS", "SemanticSearch", "ReadLints", "WebSearch", "WebFetch", "TodoWrite"),
        *("Task", "Await", "AskQuestion", "SwitchMode", "ListMcpResources", "FetchMcpResource"),
        *("read_file", "grep_search", "codebase_search", "glob_file_search", "file_search", "list_dir"),
        *("read_lints", "web_search", "todo_write", "fetch_rules", "fetch_pull_request"),
    }
)  # fmt: skip
PRESET: Final[dict[str, Any]] = {"version": 1}


def read_event(payload: Payload, environ: Mapping[str, str]) -> HookEvent | None:
    roots = payload.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else None
    payload = {
        **payload,
        "hook_event_name": str(payload.get("hook_event_name")).lower(),
        "session_id": text(payload, "conversation_id", "session_id"),
        "cwd": text(payload, "cwd") or _input_cwd(payload),
        "tool_response": _response(payload),
    }
    return new_event(NAME, payload, KINDS, READERS, root or environ.get("CURSOR_PROJECT_DIR"))


def _input_cwd(payload: Payload) -> str | None:
    tool_input = payload.get("tool_input")
    return text(tool_input, "cwd", "working_directory") if isinstance(tool_input, Mapping) else None


def _response(payload: Payload) -> Any:
    """`tool_output` is JSON in a text."""
    output = payload.get("tool_output", payload.get("tool_response"))
    if isinstance(output, str):
        try:
            return json.loads(output)
        except (ValueError, RecursionError):
            pass
    return output


def has_own_entry(environ: Mapping[str, str]) -> bool:
    """Whether the user's own file of Cursor holds Perdure's entry."""
    path = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cursor", "hooks.json")
    try:
        with open(path, "rb") as file:
            return b"hook journal --client cursor" in file.read()
    except OSError:
        return False


def reply(payload: Payload, answer: HookAnswer) -> dict[str, Any] | None:
    if answer.refusal:
        return {"permission": "deny", "user_message": answer.refusal, "agent_message": answer.refusal}
    return {"additional_context": answer.notice} if answer.notice else None


def entries(command: str, address: str | None = None) -> dict[str, Any]:
    return {event: {"command": command, "timeout": TIMEOUT_S} for event in EVENTS}
