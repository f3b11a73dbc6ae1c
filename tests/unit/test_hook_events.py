"""The JSON that clients give their hooks, as they wrote it, and the events that become of it."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.hooks.clients import client_module, read_event, sender
from perdure.hooks.relay import CLIENTS as NAMES
from perdure.workspace.timeline.event import HookEvent

CLAUDE = {
    "session_id": "d1d0110c",
    "transcript_path": "/home/u/.claude/projects/-w/d1d0110c.jsonl",
    "cwd": "/w/sub",
    "prompt_id": "ece693a0",
    "permission_mode": "default",
}
SUBAGENT = {"agent_id": "accd65c1658c5580b", "agent_type": "general-purpose"}
CODEX = {
    "session_id": "01a1ee15",
    "turn_id": "01a1ee16",
    "transcript_path": "/home/u/.codex/sessions/2026/11/18/rollout-2026-11-18T09-55-44-01a1ee15.jsonl",
    "cwd": "/w",
    "model": "gpt-5.5",
    "permission_mode": "bypassPermissions",
}
GEMINI = {
    "session_id": "8b1f",
    "transcript_path": "/home/u/.gemini/tmp/w/chats/session.json",
    "cwd": "/w",
    "timestamp": "2026-11-18T09:55:44.000Z",
}
CURSOR = {
    "conversation_id": "c1",
    "generation_id": "g1",
    "session_id": "c1",
    "model": "default",
    "cursor_version": "3.13.21",
    "workspace_roots": ["/w"],
    "user_email": "x@example.com",
    "transcript_path": None,
}
BASES: dict[str, dict[str, Any]] = {
    "claude-code": CLAUDE,
    "codex": CODEX,
    "gemini": GEMINI,
    "cursor": CURSOR,
}
PATCH = (
    "*** Begin Patch\n*** Add File: p.txt\n+hello\n*** Update File: src/old.py\n*** Move to: src/new.py\n"
    "@@\n-a\n+b\n*** Delete File: gone.txt\n*** End Patch\n"
)
ENVIRON = {"CLAUDE_PROJECT_DIR": "/w", "HOME": "/nowhere"}


def read(payload: dict[str, Any], client: str | None = None) -> HookEvent | None:
    return read_event(payload, client, ENVIRON)


def tool(base: dict[str, Any], event: str, name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {**base, "hook_event_name": event, "tool_name": name, "tool_input": given, **more}


def call(base: dict[str, Any], event: str, name: str, given: Any, **more: Any) -> HookEvent:
    found = read(tool(base, event, name, given, **more))
    assert found is not None
    return found


LIFE = [
    ("claude-code", {**CLAUDE, "hook_event_name": "SessionStart", "source": "startup"}, "session_start", None),
    ("claude-code", {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "go"}, "prompt", None),
    ("claude-code", {**CLAUDE, **SUBAGENT, "hook_event_name": "SubagentStop"}, "agent_stop", "accd65c1658c5580b"),
    ("claude-code", {**CLAUDE, "hook_event_name": "Stop", "stop_hook_active": False}, "agent_stop", None),
    ("claude-code", {**CLAUDE, "hook_event_name": "SessionEnd", "reason": "other"}, "session_end", None),
    ("claude-code", {**CLAUDE, **SUBAGENT, "hook_event_name": "PostToolBatch"}, "batch_end", "accd65c1658c5580b"),
    ("codex", {**CODEX, "hook_event_name": "UserPromptSubmit", "prompt": "go"}, "prompt", None),
    ("codex", {**CODEX, **SUBAGENT, "hook_event_name": "SubagentStop"}, "agent_stop", "accd65c1658c5580b"),
    ("codex", {**CODEX, "hook_event_name": "Stop"}, "agent_stop", None),
    ("gemini", {**GEMINI, "hook_event_name": "SessionStart", "source": "startup"}, "session_start", None),
    ("gemini", {**GEMINI, "hook_event_name": "BeforeAgent", "prompt": "go"}, "prompt", None),
    ("gemini", {**GEMINI, "hook_event_name": "AfterAgent", "prompt": "go"}, "agent_stop", None),
    ("gemini", {**GEMINI, "hook_event_name": "SessionEnd", "reason": "exit"}, "session_end", None),
    ("cursor", {**CURSOR, "hook_event_name": "beforeSubmitPrompt", "prompt": "go"}, "prompt", None),
    ("cursor", {**CURSOR, "hook_event_name": "stop", "status": "completed"}, "agent_stop", None),
    ("cursor", {**CURSOR, "hook_event_name": "sessionEnd"}, "session_end", None),
]  # fmt: skip


@pytest.mark.parametrize(("client", "payload", "kind", "agent"), LIFE)
def test_a_session_its_prompts_and_its_agents(
    client: str, payload: dict[str, Any], kind: str, agent: str | None
) -> None:
    found = read(payload)
    assert found is not None
    assert (found.client, found.kind, found.agent) == (client, kind, agent)
    assert found.session == payload["session_id"]
    assert "go" not in {value for value in vars_of(found) if isinstance(value, str)}


def vars_of(event: HookEvent) -> list[Any]:
    return [getattr(event, field) for field in event.__struct_fields__]


@pytest.mark.parametrize(
    "payload",
    [
        {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "<task-notification>\n<task-id>a7</task-id>"},
        {**CODEX, **SUBAGENT, "hook_event_name": "UserPromptSubmit", "prompt": "the task of a subagent"},
        {**CLAUDE, **SUBAGENT, "hook_event_name": "SubagentStart"},
        {**CLAUDE, "hook_event_name": "PreCompact"},
        {**CLAUDE, "hook_event_name": "PreToolUse"},
        {"hook_event_name": "Stop"},
        {"hook_event_name": ["PreToolUse"]},
        {},
    ],
)  # fmt: skip
def test_what_is_no_event_of_the_time_machine(payload: dict[str, Any]) -> None:
    assert read(payload) is None


def test_a_call_of_a_shell_in_claude_code_before_after_and_failed() -> None:
    given = {"command": "sed -i s/hi/ho/ a.txt && rm -r build", "description": "x"}
    begun = call(CLAUDE, "PreToolUse", "Bash", given, tool_use_id="toolu_1", **SUBAGENT)
    assert begun == HookEvent(
        client="claude-code",
        kind="before_tool",
        session="d1d0110c",
        cwd="/w/sub",
        project="/w",
        agent="accd65c1658c5580b",
        tool="Bash",
        call_id="toolu_1",
        command=given["command"],
    )
    failed = call(CLAUDE, "PostToolUseFailure", "Bash", given, tool_use_id="toolu_1", error="Exit code 1")
    assert (failed.kind, failed.call_id, failed.agent) == ("failed_tool", "toolu_1", None)
    ended = call(CLAUDE, "PostToolUse", "Bash", given, tool_use_id="toolu_1", tool_response={"stdout": "x"})
    assert (ended.kind, ended.response) == ("after_tool", None)


def test_a_call_of_codex() -> None:
    bash = call(
        CODEX, "PostToolUse", "Bash", {"command": "echo hi > a.txt"}, tool_use_id="c1", tool_response=""
    )
    assert (bash.client, bash.kind, bash.call_id, bash.command) == (
        "codex",
        "after_tool",
        "c1",
        "echo hi > a.txt",
    )
    patch = call(CODEX, "PreToolUse", "apply_patch", {"command": PATCH}, tool_use_id="c2")
    assert patch.paths == ("p.txt", "src/old.py", "src/new.py", "gone.txt")
    assert patch.command is None


def test_the_calls_of_gemini_have_no_identity_of_their_own() -> None:
    given = {"command": "rm a.txt", "dir_path": "/w"}
    begun = call(GEMINI, "BeforeTool", "run_shell_command", given)
    ended = call(GEMINI, "AfterTool", "run_shell_command", given, tool_response={"llmContent": "ok"})
    failed = call(GEMINI, "AfterTool", "run_shell_command", given, tool_response={"error": {"message": "x"}})
    other = call(GEMINI, "BeforeTool", "run_shell_command", {"command": "rm b.txt"})
    assert begun.call_id == ended.call_id == failed.call_id != other.call_id
    assert (begun.kind, ended.kind, failed.kind) == ("before_tool", "after_tool", "failed_tool")


def test_a_call_of_cursor_from_its_own_hooks_and_from_those_of_claude_code() -> None:
    given = {"command": "touch z", "cwd": "", "timeout": 30000}
    begun = tool(CURSOR, "preToolUse", "Shell", given, tool_use_id="t1", cwd="")
    own, loaded = read(begun, "cursor"), read(begun, "claude-code")
    assert own == loaded
    assert own is not None
    assert (own.client, own.session, own.cwd, own.call_id) == ("cursor", "c1", "/w", "t1")


def test_an_entry_that_cursor_loads_from_claude_code_counts_once(tmp_path: Any) -> None:
    begun = tool(CURSOR, "preToolUse", "Shell", {"command": "touch z"}, tool_use_id="t1")
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "hooks.json").write_text('{"command": "perdure hook journal --client cursor"}')
    environ = {"HOME": str(tmp_path)}
    assert read_event(begun, "claude-code", environ) is None
    assert read_event(begun, "cursor", environ) is not None


@pytest.mark.parametrize(
    ("base", "event", "name", "changes"),
    [
        (CLAUDE, "PreToolUse", "Read", False),
        (CLAUDE, "PreToolUse", "Agent", False),
        (CLAUDE, "PreToolUse", "Write", True),
        (CLAUDE, "PreToolUse", "a tool of tomorrow", True),
        (CLAUDE, "PreToolUse", "mcp__files__write_file", True),
        (CLAUDE, "PreToolUse", "mcp__files__read_text_file", False),
        (CLAUDE, "PreToolUse", "mcp__perdure__safe_write", True),
        (CLAUDE, "PreToolUse", "mcp__perdure__read", False),
        (CLAUDE, "PreToolUse", "mcp__perdure__get_state", False),
        (CLAUDE, "PreToolUse", "mcp__perdure__notes__add", True),
        (CODEX, "PreToolUse", "multi_agent_v1wait_agent", False),
        (CODEX, "PreToolUse", "spawn_agent", False),
        (CODEX, "PreToolUse", "mcp__shell__run", True),
        (GEMINI, "BeforeTool", "read_file", False),
        (GEMINI, "BeforeTool", "replace", True),
        (GEMINI, "BeforeTool", "mcp_perdure_history", False),
        (CURSOR, "preToolUse", "Grep", False),
        (CURSOR, "preToolUse", "Delete", True),
        (CURSOR, "preToolUse", "MCP:safe_write", True),
    ],
)
def test_only_tools_that_are_known_to_read_change_nothing(
    base: dict[str, Any], event: str, name: str, changes: bool
) -> None:
    assert call(base, event, name, {}).may_change_files is changes


@pytest.mark.parametrize(
    ("base", "event", "name", "own"),
    [
        (CLAUDE, "PostToolUse", "mcp__perdure__safe_write", "safe_write"),
        (CODEX, "PostToolUse", "mcp__perdure__transaction", "transaction"),
        (GEMINI, "AfterTool", "mcp_perdure_safe_write", "safe_write"),
        (CURSOR, "postToolUse", "MCP:edit", "edit"),
        (CLAUDE, "PostToolUse", "mcp__plugin_x_perdure__undo", "undo"),
        (CLAUDE, "PostToolUse", "mcp__perdure__notes__add", None),
        (CLAUDE, "PostToolUse", "mcp__other__edit", None),
        (CLAUDE, "PostToolUse", "Edit", None),
    ],
)
def test_the_answer_is_kept_of_our_own_tools_only(
    base: dict[str, Any], event: str, name: str, own: str | None
) -> None:
    found = call(base, event, name, {"path": "a"}, tool_response={"journal_id": "7"})
    assert found.own_tool == own
    assert found.response == ({"journal_id": "7"} if own else None)


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"file_path": "/w/a.py", "content": "path: x"}, ("/w/a.py",)),
        ({"notebook_path": "n.ipynb"}, ("n.ipynb",)),
        ({"source": "a", "destination": "b"}, ("a", "b")),
        ({"paths": ["a", "b", 3]}, ("a", "b")),
        ({"operations": [{"op": "move", "from": "a", "to": "b"}, {"path": "c"}]}, ("a", "b", "c")),
        ({"path": 7}, ()),
        ({"path": "x" * 5000}, ()),
        (PATCH, ("p.txt", "src/old.py", "src/new.py", "gone.txt")),
        (None, ()),
        ([1], ()),
    ],
)
def test_the_files_that_an_input_names(given: Any, paths: tuple[str, ...]) -> None:
    assert call(CLAUDE, "PreToolUse", "Tool", given).paths == paths


def test_an_input_of_any_size_is_read_in_bounds() -> None:
    patch = "".join(f"*** Add File: f{n}\n+x\n" for n in range(10_000))
    assert len(call(CODEX, "PreToolUse", "apply_patch", {"command": patch}).paths) == 64
    assert len(call(CLAUDE, "PreToolUse", "Tool", {"paths": [f"f{n}" for n in range(10_000)]}).paths) == 64


def test_a_patch_in_a_shell_command_names_its_files() -> None:
    found = call(CODEX, "PreToolUse", "Bash", {"command": "apply_patch <<'EOF'\n" + PATCH + "EOF\n"})
    assert found.paths == ("p.txt", "src/old.py", "src/new.py", "gone.txt")


@pytest.mark.parametrize("client", NAMES)
def test_a_client_is_found_by_what_it_sends(client: str) -> None:
    assert sender({**BASES[client], "hook_event_name": "SessionEnd"}) == client


@pytest.mark.parametrize("client", NAMES)
def test_every_entry_is_for_an_event_that_is_read(client: str) -> None:
    for event in client_module(client).entries("perdure hook journal"):
        assert read(tool(BASES[client], event, "Write", {}), client) is not None, event
