"""Hooks posted to `perdure serve`."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import perdure, told

from compiled_rules import put_compiled_rules
from harness.processes import wait_for
from perdure.hooks.relay import socket_path
from perdure.platform.process_tree import own_process
from perdure.testing.http_client import ServeProcess
from perdure.worker.compose import Settings, open_write
from testbed import Bed

pytestmark = pytest.mark.thorough
TOKEN = "a-token-of-the-owner"


@pytest.fixture
def served(bed: Bed) -> Iterator[ServeProcess]:
    put_compiled_rules(bed.root / "home")
    process = ServeProcess(bed.root, env=bed.environ)
    yield process
    assert process.stop() == 0


def post(served: ServeProcess, path: str, payload: object, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def event(workspace: Path, name: str, **more: Any) -> dict[str, Any]:
    return {"session_id": "s1", "cwd": str(workspace), "hook_event_name": name, **more}


def bash(served: ServeProcess, command: str, call: str, **headers: str) -> None:
    about = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": call}
    before = event(served.workspace, "PreToolUse", **about)
    assert post(served, "/hooks/claude-code", before, **headers) == (200, b"")
    subprocess.run(["sh", "-c", command], cwd=served.workspace, check=True)
    after = event(served.workspace, "PostToolUse", tool_response={}, **about)
    assert post(served, "/hooks/claude-code", after, **headers) == (200, b"")


def changes(bed: Bed) -> list[tuple[Any, ...]]:
    return [
        (change["tool"], change["call_id"], change.get("turn"), change["paths"])
        for change in told(bed, "timeline")["changes"]
    ]


def open_session(bed: Bed, served: ServeProcess) -> None:
    """So that a worker runs, which takes the hooks."""
    client = served.client()
    client.initialize()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", bed.environ["PERDURE_HOME"])
        address = socket_path(os.path.realpath(bed.workspace))
    assert wait_for(lambda: os.path.exists(address), 20)


@pytest.mark.parametrize("has_worker", [True, False])
def test_a_posted_hook_is_recorded(bed: Bed, served: ServeProcess, has_worker: bool) -> None:
    if has_worker:
        open_session(bed, served)
    post(served, "/hooks/claude-code", event(bed.workspace, "UserPromptSubmit", prompt="do it"))
    bash(served, "echo x > a.txt", "toolu_1")
    assert changes(bed) == [("Bash", "toolu_1", 1, ["a.txt"])]


def test_a_posted_hook_names_the_process_that_posted_it(bed: Bed, served: ServeProcess) -> None:
    """As a hook's own process does: so the client and its stdio session are one."""
    open_session(bed, served)
    about = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    for call in ("toolu_1", "toolu_2"):
        hook = event(bed.workspace, "PreToolUse", tool_use_id=call, **about)
        assert post(served, "/hooks/claude-code", hook)[0] == 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", bed.environ["PERDURE_HOME"])
        workspace = open_write(Settings(workspaces=(str(bed.workspace),)), is_read_only=True)
        calls = workspace.journal.open_calls()
        workspace.close()
    assert [call.process for call in calls] == [own_process()] * 2


def test_a_hook_of_another_project_is_recorded_there(bed: Bed, served: ServeProcess) -> None:
    other = bed.root / "other"
    other.mkdir()
    (other / "a.txt").write_text("first\n")
    about = {"tool_name": "Bash", "tool_input": {"command": "rm a.txt"}, "tool_use_id": "toolu_1"}
    assert post(served, "/hooks/claude-code", event(other, "PreToolUse", **about))[0] == 200
    (other / "a.txt").unlink()
    assert post(served, "/hooks/claude-code", event(other, "PostToolUse", **about))[0] == 200
    (change,) = told(bed, "timeline", "--workspace", str(other))["changes"]
    assert (change["paths"], change["call_id"]) == (["a.txt"], "toolu_1")
    assert changes(bed) == []


@pytest.mark.parametrize(
    ("path", "payload", "status"),
    [
        ("/hooks/nobody", {}, 404),
        ("/hooks/", {}, 404),
        ("/hooks/claude-code", {}, 400),
        ("/hooks/claude-code", b"no JSON", 400),
    ],
)
def test_what_is_no_hook_is_refused(served: ServeProcess, path: str, payload: object, status: int) -> None:
    assert post(served, path, payload)[0] == status


def test_a_page_of_another_site_posts_no_hook(served: ServeProcess) -> None:
    hook = event(served.workspace, "SessionEnd")
    assert post(served, "/hooks/claude-code", hook, Origin="http://evil.example")[0] == 403
    assert post(served, "/hooks/claude-code", hook, Host="evil.example")[0] == 421


def test_a_token_is_asked_for_where_there_is_one(bed: Bed) -> None:
    put_compiled_rules(bed.root / "home")
    served = ServeProcess(bed.root, env={**bed.environ, "PERDURE_TOKEN": TOKEN})
    try:
        hook = event(served.workspace, "SessionEnd")
        assert post(served, "/hooks/claude-code", hook)[0] == 401
        assert post(served, "/hooks/claude-code", hook, Authorization=f"Bearer {TOKEN}") == (200, b"")
    finally:
        assert served.stop() == 0


def test_install_writes_the_address_of_the_running_server_and_uninstall_takes_it_out(
    bed: Bed, served: ServeProcess
) -> None:
    file = bed.root / ".claude" / "settings.json"
    file.parent.mkdir()
    before = (
        '{\n  "model": "opus",  "hooks": {"Stop": [{"hooks": [{"type": "http", "url": "http://a/b"}]}]}\n}\n'
    )
    file.write_text(before)
    done = perdure(bed, "install", "claude-code", "--hooks", "--shared", "--apply")
    assert done.returncode == 0, done.stderr
    hooks = json.loads(file.read_text())["hooks"]
    (own,) = hooks["PreToolUse"][0]["hooks"]
    assert (own["type"], own["url"]) == ("http", f"http://127.0.0.1:{served.port}/hooks/claude-code")
    assert TOKEN not in file.read_text()
    assert hooks["SessionStart"][0]["hooks"][0]["type"] == "command"
    assert len(hooks["Stop"]) == 2
    # a second time changes nothing, and the command form replaces it
    again = json.loads(perdure(bed, "install", "claude-code", "--hooks", "--shared", "--json").stdout)
    assert (again["action"], again["settings"]["action"]) == ("unchanged", "unchanged")
    perdure(bed, "install", "claude-code", "--hooks", "--apply")
    assert "/hooks/claude-code" not in file.read_text()
    perdure(bed, "uninstall", "claude-code", "--apply")
    assert file.read_text() == before


def test_without_a_server_hooks_are_posted_to_where_one_will_be_started(bed: Bed) -> None:
    done = perdure(bed, "install", "claude-code", "--hooks", "--shared", "--apply")
    assert done.returncode == 0, done.stderr
    hooks = json.loads((bed.root / ".claude" / "settings.json").read_text())["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["url"] == "http://127.0.0.1:8765/hooks/claude-code"
