"""Calls of a mounted server in the time machine, with a real server that writes files."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import perdure, told

from compiled_rules import put_compiled_rules
from harness.processes import wait_for
from perdure.hooks.relay import socket_path
from perdure.platform import sockets
from perdure.testing.http_client import ServeProcess
from testbed import Bed, Client, Server

WRITER = Path(__file__).parent / "servers" / "file_writer.py"


@pytest.fixture
def bed_of_mounts(bed: Bed) -> Bed:
    bed.settings("[timeline]\nmounts = true\n")
    return bed


def writer(bed: Bed) -> Server:
    return Server("files", (sys.executable, "-S", str(WRITER)), bed.root)


def start(bed: Bed) -> Client:
    client = bed.run(writer(bed))
    address = hook_socket(bed)
    assert wait_for(lambda: os.path.exists(address), 20)
    return client


def hook_socket(bed: Bed) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", bed.environ["PERDURE_HOME"])
        return socket_path(os.path.realpath(bed.workspace))


def timeline(bed: Bed) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = told(bed, "timeline")["changes"]
    return changes


def write(client: Client, path: str, content: str, tool: str = "write_file") -> Any:
    return client.use(f"files__{tool}", {"path": path, "content": content})


def test_a_call_of_a_mounted_server_is_one_change_and_can_be_undone(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    (bed.workspace / "a.txt").write_text("first\n")
    client = start(bed)
    # when a server behind Perdure overwrites one file and creates another
    write(client, "a.txt", "second\n")
    write(client, "b.txt", "new\n")
    # then each call is a change with its tool, client and session, as soon as it is answered
    changes = timeline(bed)
    assert [(change["tool"], change["paths"], change["status"]) for change in changes] == [
        ("files__write_file", ["a.txt"], "done"),
        ("files__write_file", ["b.txt"], "done"),
    ]
    client.use("safe_write", {"path": "own.txt", "content": "x\n"})
    last = timeline(bed)[-1]
    assert (changes[0]["client"], changes[0]["session"]) == (last["client"], last["session"])
    # and the first is taken back, the second stays
    told(bed, "undo", str(changes[0]["id"]))
    assert (bed.workspace / "a.txt").read_text() == "first\n"
    assert (bed.workspace / "b.txt").read_text() == "new\n"


@pytest.mark.thorough
def test_what_a_lost_server_has_written_is_its_change(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    answer = client.wait(client.begin_use("files__crash", {"path": "a.txt", "content": "x\n"}))
    assert answer["error"]["data"]["outcome"] == "unknown"
    assert [(change["tool"], change["paths"]) for change in timeline(bed)] == [("files__crash", ["a.txt"])]


@pytest.mark.thorough
def test_a_tool_that_only_reads_is_not_observed(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    write(client, "first.txt", "x\n")
    write(client, "a.txt", "x\n", tool="peek")
    assert [change["tool"] for change in timeline(bed)] == ["files__write_file"]


@pytest.mark.thorough
def test_without_the_setting_nothing_is_observed(bed: Bed) -> None:
    client = start(bed)
    write(client, "a.txt", "x\n")
    assert timeline(bed) == []


@pytest.mark.thorough
def test_a_recorder_that_does_not_answer_delays_a_call_by_its_bound_only(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    # given a listener in the recorder's place that never answers
    address = hook_socket(bed)
    os.unlink(address)
    with sockets.new_local() as deaf:
        sockets.bind_private(deaf, address)
        deaf.listen(8)
        # when a call is made, and others meanwhile
        call = client.begin_use("files__write_file", {"path": "a.txt", "content": "x\n"})
        client.use("safe_write", {"path": "b.txt", "content": "x\n"})
        client.ask("ping", {})
        assert not (bed.workspace / "a.txt").exists()
        # then it is made all the same
        assert "result" in client.wait(call, 30)
    assert (bed.workspace / "a.txt").read_text() == "x\n"
    # and it is said
    assert "a call of files went on unobserved" in client.stderr


@pytest.mark.thorough
def test_a_call_that_a_hook_of_the_same_client_tells_of_is_one_change(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    facts = {
        "session_id": "s1",
        "cwd": str(bed.workspace),
        "tool_name": "mcp__perdure__files__write_file",
        "tool_input": {"path": "a.txt"},
        "tool_use_id": "toolu_1",
    }
    words = ("hook", "journal", "--client", "claude-code")
    perdure(bed, *words, stdin=json.dumps({**facts, "hook_event_name": "PreToolUse"}))
    write(client, "a.txt", "x\n")
    perdure(bed, *words, stdin=json.dumps({**facts, "hook_event_name": "PostToolUse", "tool_response": "ok"}))
    (change,) = timeline(bed)
    assert (change["tool"], change["call_id"]) == ("mcp__perdure__files__write_file", "toolu_1")


@pytest.mark.thorough
def test_a_call_that_runs_while_the_host_is_replaced_ends_in_the_timeline(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    call = client.begin_use("files__linger", {"path": "a.txt", "content": "x\n"})
    assert wait_for((bed.workspace / "a.txt").exists, 20)
    os.kill(client.pid, signal.SIGUSR2)
    assert wait_for(
        lambda: any("host_replaced" in path.read_text() for path in bed.root.rglob("events.jsonl")), 20
    )
    (bed.workspace / "go").touch()
    assert "result" in client.wait(call)
    (change,) = timeline(bed)
    assert (change["tool"], change["status"], change["paths"]) == ("files__linger", "done", ["a.txt", "go"])


@pytest.mark.thorough
def test_a_call_that_is_cancelled_while_it_waits_for_the_recorder(bed_of_mounts: Bed) -> None:
    bed = bed_of_mounts
    client = start(bed)
    address = hook_socket(bed)
    os.unlink(address)
    with sockets.new_local() as deaf:
        sockets.bind_private(deaf, address)
        deaf.listen(8)
        client.cancel(client.begin_use("files__write_file", {"path": "a.txt", "content": "x\n"}))
        # what the client asks next goes behind it, in order
        assert "result" in client.wait(
            client.begin_use("files__peek", {"path": "b.txt", "content": "x\n"}), 30
        )
    assert (bed.workspace / "a.txt").exists()


@pytest.mark.thorough
def test_the_same_behind_serve(bed: Bed) -> None:
    put_compiled_rules(bed.root / "home")
    bed.settings("[timeline]\nmounts = true\n")
    mount = f"files={sys.executable} -S {WRITER}"
    served = ServeProcess(bed.root, "--mount", mount, env=bed.environ, workspace="workspace")
    try:
        client = served.client()
        client.initialize()
        assert wait_for(lambda: os.path.exists(hook_socket(bed)), 20)
        client.call("files__write_file", {"path": "a.txt", "content": "x\n"})
        (change,) = timeline(bed)
        assert (change["tool"], change["paths"], change["status"]) == ("files__write_file", ["a.txt"], "done")
    finally:
        assert served.stop() == 0
