"""`perdure hook` with the JSON that Claude Code gives its hooks: native writes steered, or journaled afterwards."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import perdure, told

from testbed import Bed

SESSION = "0f4a2c1e-9b1d-4a57-8a64-3b0f9a3c77d1"


def event(bed: Bed, name: str, tool: str, path: str, response: dict[str, Any] | None = None) -> str:
    """As the client writes it: absolute paths, and what the tool answered only after it ran."""
    key = "notebook_path" if tool == "NotebookEdit" else "file_path"
    said: dict[str, Any] = {
        "session_id": SESSION,
        "transcript_path": "/home/somebody/.claude/projects/x/transcript.jsonl",
        "cwd": str(bed.workspace),
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": tool,
        "tool_input": {key: str(bed.workspace / path), "content": "not looked at"},
        "tool_use_id": "toolu_01ABC",
    }
    return json.dumps({**said, "tool_response": response} if response is not None else said)


def hook(bed: Bed, mode: str, given: str, *words: str) -> subprocess.CompletedProcess[str]:
    return perdure(bed, "hook", mode, *words, stdin=given)


def native_write(bed: Bed, path: str, content: str, response: dict[str, Any] | None = None) -> None:
    """A write by the client's own tool, with the hooks before and after it."""
    file = bed.workspace / path
    tool = "Write" if not file.exists() else "Edit"
    before = hook(bed, "journal", event(bed, "PreToolUse", tool, path))
    assert (before.returncode, before.stdout, before.stderr) == (0, "", "")
    file.write_text(content)
    after = hook(bed, "journal", event(bed, "PostToolUse", tool, path, response or {"filePath": str(file)}))
    assert (after.returncode, after.stdout, after.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("tool", "instead"), [("Write", "safe_write"), ("Edit", "edit"), ("NotebookEdit", "safe_write")]
)
def test_a_native_write_is_refused_with_the_name_of_the_tool_to_use(
    bed: Bed, tool: str, instead: str
) -> None:
    done = hook(bed, "steer", event(bed, "PreToolUse", tool, "src/app.py"), "--server", "pd")
    assert done.returncode == 0
    decision = json.loads(done.stdout)["hookSpecificOutput"]
    assert (decision["hookEventName"], decision["permissionDecision"]) == ("PreToolUse", "deny")
    assert f"mcp__pd__{instead}" in decision["permissionDecisionReason"]
    assert "src/app.py" in decision["permissionDecisionReason"]
    assert str(bed.workspace) not in decision["permissionDecisionReason"]


@pytest.mark.parametrize("mode", ["steer", "journal"])
def test_what_is_not_a_write_in_the_workspace_passes_without_a_word(bed: Bed, mode: str) -> None:
    elsewhere = json.loads(event(bed, "PreToolUse", "Write", "a"))
    elsewhere["tool_input"]["file_path"] = str(bed.root / "outside.txt")
    others = [
        elsewhere,
        {**elsewhere, "tool_name": "Bash", "tool_input": {"command": "ls"}},
        {**elsewhere, "tool_name": "Read"},
        {**elsewhere, "hook_event_name": "Stop"},
        {**elsewhere, "tool_input": None},
        {},
    ]
    for one in others:
        done = hook(bed, mode, json.dumps(one))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), one
    assert list(bed.workspace.iterdir()) == []


@pytest.mark.parametrize("given", ["", "not json", "[]", "[" * 100_000])
def test_what_no_client_sends_blocks_nothing_and_is_said(bed: Bed, given: str) -> None:
    done = hook(bed, "journal", given)
    assert (done.returncode, done.stdout) == (1, "")
    assert "not the JSON object of a hook" in done.stderr


@pytest.mark.thorough
def test_native_writes_have_versions_a_diff_and_an_undo(bed: Bed) -> None:
    # given a file that nobody journaled, then edited by the client's own tool, twice
    file = bed.workspace / "a.txt"
    file.write_text("by hand\n")
    native_write(bed, "a.txt", "first\n")
    native_write(bed, "a.txt", "second\n")

    # then every state of it is a version, under the client's name and session
    versions = told(bed, "history", "a.txt")["versions"]
    assert [(one["op"], one["client"]) for one in versions] == [
        ("native", "claude-code"),
        ("native", "claude-code"),
        ("native", "another program"),
    ]
    assert versions[0]["session"] == SESSION
    assert "-first\n+second" in told(bed, "diff", "a.txt")["diff"]
    assert told(bed, "verify")["problems"] == []

    # and each can be taken back, the first of all to what the hand wrote
    assert perdure(bed, "undo", "--path", "a.txt").returncode == 0
    assert file.read_text() == "first\n"
    assert perdure(bed, "undo", "--path", "a.txt").returncode == 0
    assert file.read_text() == "by hand\n"


def test_the_undo_of_a_file_that_a_native_tool_made_removes_it(bed: Bed) -> None:
    (bed.workspace / "new").mkdir()
    native_write(bed, "new/b.txt", "x\n", {"type": "create"})
    assert perdure(bed, "undo").returncode == 0
    assert not (bed.workspace / "new" / "b.txt").exists()


def test_without_the_hook_before_a_file_that_was_there_is_never_removed_by_an_undo(bed: Bed) -> None:
    file = bed.workspace / "a.txt"
    file.write_text("after\n")
    said = event(bed, "PostToolUse", "Edit", "a.txt", {"filePath": str(file)})
    assert hook(bed, "journal", said).returncode == 0
    perdure(bed, "undo", "--path", "a.txt")
    assert file.read_text() == "after\n"


def test_what_the_tool_says_was_there_is_taken_at_its_word(bed: Bed) -> None:
    file = bed.workspace / "a.txt"
    file.write_text("after\n")
    said = event(bed, "PostToolUse", "Edit", "a.txt", {"filePath": str(file), "originalFile": "before\n"})
    assert hook(bed, "journal", said).returncode == 0
    assert perdure(bed, "undo", "--path", "a.txt").returncode == 0
    assert file.read_text() == "before\n"


def test_our_own_writes_are_not_journaled_twice(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a.txt", "content": "x\n"})
    assert client.close() == 0
    for name in ("PreToolUse", "PostToolUse"):
        assert hook(bed, "journal", event(bed, name, "Edit", "a.txt", {})).returncode == 0
    assert len(told(bed, "history", "a.txt")["versions"]) == 1


def test_the_printed_settings_run_the_hook(bed: Bed) -> None:
    done = perdure(bed, "hook", "settings", "journal")
    hooks = json.loads(done.stdout)["hooks"]
    assert set(hooks) == {"PreToolUse", "PostToolUse"}
    (entry,) = hooks["PostToolUse"]
    assert entry["matcher"].split("|") == ["Write", "Edit", "MultiEdit", "NotebookEdit"]
    command = shlex.split(entry["hooks"][0]["command"])
    (Path(bed.workspace) / "a.txt").write_text("x\n")
    ran = subprocess.run(
        command,
        input=event(bed, "PostToolUse", "Write", "a.txt", {"type": "create"}),
        env=bed.environ,
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert told(bed, "history", "a.txt")["versions"][0]["op"] == "native"
