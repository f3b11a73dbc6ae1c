"""Reservations and the clients' own tools: a hook refuses an edit, and tells of what a shell command changed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import perdure

from harness.user_settings import user_settings
from testbed import Bed

# Another client: it runs what it is told, so that each command has it as its ancestor.
CLIENT = """
import json, subprocess, sys
for line in sys.stdin:
    words, text = json.loads(line)
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""
Run = Callable[..., str]


@contextmanager
def other_client(bed: Bed) -> Iterator[Run]:
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=bed.workspace,
        env=bed.environ,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(*words: str, text: str = "") -> str:
        command = [sys.executable, "-P", "-m", "perdure", *words]
        print(json.dumps([command, text]), file=stdin, flush=True)
        code, out, err = json.loads(stdout.readline())
        assert code == 0, out + err
        return str(out)

    try:
        yield run
    finally:
        process.communicate()


@pytest.fixture
def other(bed: Bed) -> Iterator[Run]:
    with other_client(bed) as run:
        yield run


@pytest.fixture
def restoring(bed: Bed, tmp_path: Path) -> None:
    bed.environ |= user_settings(tmp_path, '[reservations]\nshell = "restore"\n')


@pytest.fixture(params=["cold", "resident"])
def recorder(request: pytest.FixtureRequest, bed: Bed) -> Iterator[None]:
    """A hook that works alone, and one that a worker answers."""
    if request.param == "cold":
        yield
        return
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(bed.workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=bed.environ,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    request_line = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    worker.stdin.write(json.dumps(request_line).encode() + b"\n")
    worker.stdin.flush()
    worker.stdout.readline()
    yield
    worker.communicate()


def event(bed: Bed, name: str, tool: str, tool_input: dict[str, Any], **more: Any) -> str:
    fields = {"session_id": "s1", "cwd": str(bed.workspace), "hook_event_name": name, "tool_name": tool}
    return json.dumps({**fields, "tool_input": tool_input, "tool_use_id": "call-1", **more})


def hook(bed: Bed, text: str, client: str = "claude-code") -> Any:
    done = perdure(bed, "hook", "journal", "--client", client, stdin=text)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else None


@pytest.mark.usefixtures("recorder")
def test_an_edit_of_a_reserved_file_is_refused_before_it_runs(bed: Bed, other: Run) -> None:
    other("reserve", "src", "--reason", "a move")
    held = {"file_path": str(bed.workspace / "src" / "app.py"), "content": "x"}
    answer = hook(bed, event(bed, "PreToolUse", "Write", held))["hookSpecificOutput"]
    assert (answer["hookEventName"], answer["permissionDecision"]) == ("PreToolUse", "deny")
    assert "src/app.py is reserved by perdure-cli" in answer["permissionDecisionReason"]
    assert "a move" in answer["permissionDecisionReason"]
    # other files, reading tools and the owner's own edits go on
    free = {"file_path": str(bed.workspace / "docs.md"), "content": "x"}
    assert hook(bed, event(bed, "PreToolUse", "Write", free)) is None
    assert hook(bed, event(bed, "PreToolUse", "Read", held)) is None
    assert (
        other("hook", "journal", "--client", "claude-code", text=event(bed, "PreToolUse", "Write", held))
        == ""
    )
    other("release", "1")
    assert hook(bed, event(bed, "PreToolUse", "Write", held)) is None


@pytest.mark.parametrize(
    ("client", "name", "tool", "more", "key", "value"),
    [
        ("codex", "PreToolUse", "apply_patch", {}, "permissionDecision", "deny"),
        ("gemini", "BeforeTool", "write_file", {}, "decision", "deny"),
        ("cursor", "preToolUse", "Write", {"cursor_version": "2"}, "permission", "deny"),
    ],
)
def test_each_client_is_refused_in_its_own_form(
    bed: Bed, other: Run, client: str, name: str, tool: str, more: dict[str, Any], key: str, value: str
) -> None:
    other("reserve", "app.py")
    patch = {"command": "*** Begin Patch\n*** Update File: app.py\n*** End Patch"}
    tool_input = patch if tool == "apply_patch" else {"file_path": str(bed.workspace / "app.py")}
    answer = hook(bed, event(bed, name, tool, tool_input, **more), client)
    answer = answer.get("hookSpecificOutput", answer)
    assert answer[key] == value


@pytest.mark.usefixtures("recorder")
def test_a_shell_command_that_changes_a_reserved_file_is_told_to_both(bed: Bed, other: Run) -> None:
    (bed.workspace / "app.py").write_text("one\n")
    other("reserve", "app.py")
    command = {"command": "echo two > app.py"}
    assert hook(bed, event(bed, "PreToolUse", "Bash", command)) is None
    (bed.workspace / "app.py").write_text("two, and longer\n")
    told = hook(bed, event(bed, "PostToolUse", "Bash", command))["hookSpecificOutput"]["additionalContext"]
    assert "app.py is reserved by perdure-cli" in told
    # the owner is told at its next call, once
    after = event(bed, "PostToolUse", "Bash", {"command": "true"}, session_id="s2")
    answer = json.loads(other("hook", "journal", "--client", "claude-code", text=after))
    assert "app.py, which you reserved, was changed by claude-code" in str(answer)
    assert other("hook", "journal", "--client", "claude-code", text=after) == ""


@pytest.mark.usefixtures("restoring", "recorder")
def test_a_shell_command_in_a_reserved_file_is_put_back_where_the_settings_say_so(
    bed: Bed, other: Run
) -> None:
    for file in (bed.workspace / "app.py", bed.workspace / "free.py"):
        file.write_text("one\n")
    other("reserve", "app.py")
    command = {"command": "sed -i s/one/two/ *.py"}
    assert hook(bed, event(bed, "PreToolUse", "Bash", command)) is None
    for file in (bed.workspace / "app.py", bed.workspace / "free.py"):
        file.write_text("two, and longer\n")
    told = hook(bed, event(bed, "PostToolUse", "Bash", command))["hookSpecificOutput"]["additionalContext"]
    assert "it was put back" in told
    assert (bed.workspace / "app.py").read_text() == "one\n"
    assert (bed.workspace / "free.py").read_text() == "two, and longer\n"
    after = event(bed, "PostToolUse", "Bash", {"command": "true"}, session_id="s2")
    assert "it was put back" in other("hook", "journal", "--client", "claude-code", text=after)


def test_reservations_end_with_the_session_and_with_the_client(bed: Bed) -> None:
    held = {"file_path": str(bed.workspace / "app.py")}
    with other_client(bed) as other:
        other("reserve", "app.py")
        assert hook(bed, event(bed, "PreToolUse", "Write", held)) is not None
        end = json.dumps({"session_id": "s2", "cwd": str(bed.workspace), "hook_event_name": "SessionEnd"})
        other("hook", "journal", "--client", "claude-code", text=end)
        assert hook(bed, event(bed, "PreToolUse", "Write", held)) is None
        other("reserve", "app.py")
        assert hook(bed, event(bed, "PreToolUse", "Write", held)) is not None
    assert hook(bed, event(bed, "PreToolUse", "Write", held)) is None
