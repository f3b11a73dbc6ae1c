"""Reservations: what one client holds, no other can write through Perdure."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from write_tools import TestCall, Tools

from perdure.platform.process_tree import client_process


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    made = Tools(tmp_path / "work")
    yield made
    made.close()


def reserve(tools: Tools, client: str, *paths: str, **more: Any) -> dict[str, Any]:
    is_ok, payload = tools.use("reserve", {"action": "acquire", "paths": list(paths), **more}, client)
    assert is_ok, payload
    return payload


def write(tools: Tools, client: str, path: str, content: str = "x\n") -> tuple[bool, dict[str, Any]]:
    return tools.use("safe_write", {"path": path, "content": content, "mode": "overwrite"}, client)


def test_a_reserved_path_is_refused_to_others_and_open_to_its_owner(tools: Tools) -> None:
    granted = reserve(tools, "alice", "src", "*.md", reason="moving it")
    assert granted["status"] == "ok"
    assert granted["token"] == 1
    assert [holder["path"] for holder in granted["holders"]] == ["src", "*.md"]
    for path in ("src/app.py", "src/deep/app.py", "docs/a.md"):
        is_ok, refusal = write(tools, "bob", path)
        assert not is_ok
        assert (refusal["error"], refusal["context"]["reason"]) == ("conflict", "reserved")
        [holder] = refusal["context"]["holders"]
        assert (holder["path"], holder["client"], holder["reason"]) == (path, "alice", "moving it")
        assert refusal["context"]["next"]
        assert write(tools, "alice", path)[0]
    assert write(tools, "bob", "other.py")[0]


def test_every_tool_that_writes_is_refused(tools: Tools) -> None:
    assert write(tools, "bob", "a.py", "one\n")[0]
    assert write(tools, "bob", "b.py", "one\n")[0]
    journal_id = tools.use("history", {"path": "a.py"})[1]["versions"][0]["journal_id"]
    assert write(tools, "bob", "a.py", "two\n")[0]
    reserve(tools, "alice", "a.py")
    edit = {"path": "a.py", "edits": [{"old": "two", "new": "three"}]}
    ops = [{"op": "delete", "path": "b.py"}, {"op": "move", "path": "a.py", "to": "c.py"}]
    for tool, arguments in (
        ("edit", edit),
        ("transaction", {"ops": ops}),
        ("undo", {"path": "a.py"}),
        ("rewind", {"to": "1", "dry_run": False}),
        ("restore", {"path": "a.py", "journal_id": journal_id}),
    ):
        is_ok, refusal = tools.use(tool, arguments, "bob")
        assert not is_ok, tool
        assert refusal["context"]["reason"] == "reserved", tool
    assert (tools.workspace / "a.py").read_text() == "two\n"
    assert (tools.workspace / "b.py").exists()


@pytest.mark.parametrize("arguments", [("undo", {"change": "1"}), ("rewind", {"to": "1"})])
def test_a_preview_lists_reserved_paths_as_conflicts(
    tools: Tools, arguments: tuple[str, dict[str, Any]]
) -> None:
    assert write(tools, "bob", "a.py", "one\n")[0]
    reserve(tools, "alice", "a.py")
    tool, given = arguments
    is_ok, preview = tools.use(tool, {**given, "dry_run": True}, "bob")
    assert is_ok, preview
    [conflict] = preview["conflicts"]
    assert (conflict["path"], conflict["reason"], conflict["by"]) == ("a.py", "reserved", "alice")
    assert tools.use(tool, {**given, "dry_run": True}, "alice")[1]["conflicts"] == []


def test_all_paths_are_granted_or_none(tools: Tools) -> None:
    reserve(tools, "alice", "src/app.py")
    held = reserve(tools, "bob", "docs", "src/*.py")
    assert held["status"] == "held"
    assert [(one["path"], one["client"]) for one in held["holders"]] == [("src/*.py", "alice")]
    assert write(tools, "alice", "docs/a.md")[0]
    assert reserve(tools, "bob", "docs")["status"] == "ok"


def test_owners_of_shared_reservations_may_write_and_others_may_not(tools: Tools) -> None:
    for client in ("alice", "bob"):
        assert reserve(tools, client, "src", mode="shared")["status"] == "ok"
    assert write(tools, "alice", "src/a.py")[0]
    assert write(tools, "bob", "src/a.py")[0]
    assert not write(tools, "carol", "src/a.py")[0]
    assert reserve(tools, "alice", "src/a.py")["status"] == "held"


def test_a_token_is_renewed_and_released_by_its_owner_alone(tools: Tools) -> None:
    token = reserve(tools, "alice", "src", ttl_s=60)["token"]
    renewed = tools.use("reserve", {"action": "renew", "token": token, "ttl_s": 600}, "alice")[1]
    assert renewed["status"] == "ok"
    assert tools.use("reserve", {"action": "renew", "token": token}, "bob")[1]["status"] == "not_found"
    assert tools.use("reserve", {"action": "release", "token": token}, "bob")[1]["status"] == "held"
    assert not write(tools, "bob", "src/a.py")[0]
    assert tools.use("reserve", {"action": "release", "token": token}, "alice")[1]["status"] == "ok"
    assert write(tools, "bob", "src/a.py")[0]
    assert tools.use("reserve", {"action": "renew", "token": token}, "alice")[1]["status"] == "lost"
    assert tools.use("reserve", {"action": "renew", "token": 99}, "alice")[1]["status"] == "not_found"
    # a token is never given out again
    assert reserve(tools, "alice", "src")["token"] == token + 1


def test_an_expired_reservation_holds_nothing(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    token = reserve(tools, "alice", "src", ttl_s=60)["token"]
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    assert write(tools, "bob", "src/a.py")[0]
    assert tools.use("reserve", {"action": "list"})[1]["holders"] == []
    assert tools.use("reserve", {"action": "renew", "token": token}, "alice")[1]["status"] == "lost"


def test_a_reservation_ends_with_the_process_of_its_owner(tools: Tools) -> None:
    # given a reservation that a process took, and that process alive
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = client_process()
    assert own is not None
    namespace = own.split(":")[0]
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    identity = f"{namespace}:{process.pid}:{start}"
    call = TestCall("alice")
    call.process = identity
    tools.service.committer.transact(
        lambda: tools.service.reservations.acquire(call, ("src",), "exclusive", 600, "")
    )
    assert not write(tools, "bob", "src/a.py")[0]
    # when it ends
    process.communicate(b"\n")
    # then the path is free
    assert write(tools, "bob", "src/a.py")[0]


def test_a_link_stands_for_its_target(tools: Tools) -> None:
    (tools.workspace / "real").mkdir()
    os.symlink("real", tools.workspace / "link")
    granted = reserve(tools, "alice", "link", str(tools.workspace / "link" / "*.py"))
    assert [holder["path"] for holder in granted["holders"]] == ["real", "real/*.py"]
    assert not write(tools, "bob", "real/a.txt")[0]
    assert not write(tools, "bob", "link/a.txt")[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"action": "acquire"}, "bad_paths"),
        ({"action": "acquire", "paths": []}, "bad_paths"),
        ({"action": "acquire", "paths": ["!a"]}, "bad_paths"),
        ({"action": "acquire", "paths": [" "]}, "bad_paths"),
        ({"action": "acquire", "paths": ["*/../a"]}, "bad_paths"),
        ({"action": "acquire", "paths": ["../a"]}, "escapes_workspace"),
        ({"action": "renew"}, "missing_argument"),
    ],
)
def test_bad_input_gets_a_reason(tools: Tools, arguments: dict[str, Any], reason: str) -> None:
    is_ok, refusal = tools.use("reserve", arguments)
    assert not is_ok
    assert refusal["context"]["reason"] == reason
    assert refusal["context"]["next"]


def test_a_recent_change_of_another_agent_is_told(tools: Tools) -> None:
    write(tools, "alice", "a.py", "one\n")
    is_ok, payload = write(tools, "bob", "a.py", "two\n")
    assert is_ok
    assert any("a.py was changed by alice" in warning for warning in payload["warnings"])
    assert not write(tools, "bob", "a.py", "three\n")[1]["warnings"]
