"""The client's process ties its hooks to its MCP session, and tells when a call will never end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure.platform.process_tree import client_process
from perdure.storage.timeline import CallRecord
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    opened = open_write(Settings(workspaces=(str(tmp_path / "work"),), surfaces=("write",)))
    yield opened
    opened.close()


def begin(workspace: Workspace, process: str | None, call_id: str) -> None:
    Recorder(workspace).handle(
        HookEvent(
            client="codex",
            kind="before_tool",
            session="s",
            cwd=workspace.roots[0].path,
            tool="Bash",
            call_id=call_id,
            process=process,
        )
    )


def open_calls(workspace: Workspace) -> list[CallRecord]:
    return workspace.journal.open_calls()


def test_the_call_of_a_client_that_is_gone_is_unfinished(workspace: Workspace) -> None:
    # given a call of a client that runs, and one of a client that was killed in the middle of it
    begin(workspace, client_process(), "of the living")
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    begin(workspace, client.stdout.readline().decode().strip(), "of the killed")
    client.kill()
    client.communicate()
    path = os.path.join(workspace.roots[0].path, "a.txt")
    with open(path, "w") as file:
        file.write("by one of both\n")
    # when the workspace is observed
    Recorder(workspace).observe()
    # then only the first is still open, and what changed is told as shared
    assert [call.call_id for call in open_calls(workspace)] == ["of the living"]
    last = workspace.journal.last_of("a.txt")
    assert last is not None
    assert last.detail["call"]["shared_with"] == ["of the killed"]
    # and what changes from now on is of the first alone
    with open(path, "a") as file:
        file.write("more\n")
    Recorder(workspace).observe()
    last = workspace.journal.last_of("a.txt")
    assert last is not None
    assert "shared_with" not in last.detail["call"]


CLIENT = (
    "import subprocess, sys;"
    "print(subprocess.run([sys.executable, '-c', 'from perdure.platform.process_tree import client_process;"
    "print(client_process())'], capture_output=True, text=True).stdout.strip(), flush=True); input()"
)


def test_a_hook_through_a_shell_names_the_process_that_started_the_shell(
    workspace: Workspace, tmp_path: Path
) -> None:
    root = workspace.roots[0].path
    payload = {
        "session_id": "s",
        "cwd": root,
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls"},
        "tool_use_id": "c1",
    }
    subprocess.run(
        ["sh", "-c", f"{sys.executable} -m perdure hook journal --client claude-code; true"],
        input=json.dumps(payload).encode(),
        env={**os.environ, "PERDURE_HOME": str(tmp_path / "home"), "CLAUDE_PROJECT_DIR": root},
        check=True,
    )
    (call,) = open_calls(workspace)
    assert call.process is not None
    assert call.process.split(":")[1] == str(os.getpid())
