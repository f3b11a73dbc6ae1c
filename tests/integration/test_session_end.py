"""The end of a session: everything that was asked is answered, and no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from perdure.testing.raw_client import CAPABILITIES, CLIENT_INFO, HANDSHAKE, MODERN, Object, envelope
from testbed import Bed, Client


def frames(*requests: Object) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n" for request in requests)


INITIALIZE: Object = {
    "id": "init",
    "method": "initialize",
    "params": {"protocolVersion": HANDSHAKE, "capabilities": CAPABILITIES, "clientInfo": CLIENT_INFO},
}
WORK: tuple[Object, ...] = (
    {"id": "list", "method": "tools/list"},
    {"id": "echo", "method": "tools/call", "params": {"name": "fake__echo", "arguments": {"text": "hi"}}},
    {
        "id": "slow",
        "method": "tools/call",
        "params": {"name": "fake__slow", "arguments": {"ms": 300, "key": "s"}},
    },
    {"id": "read", "method": "resources/read", "params": {"uri": "fake://a"}},
    {"id": "health", "method": "tools/call", "params": {"name": "health"}},
    {"id": "ping", "method": "ping"},
)


def pour(bed: Bed, argv: list[str], data: bytes) -> dict[str, Object]:
    """`printf frames | perdure …`: the answers by id, after a clean exit."""
    done = subprocess.run(
        argv, input=data, capture_output=True, env=bed.environ, cwd=bed.workspace, timeout=20, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    answers = [frame for frame in found if "id" in frame]
    assert len({frame["id"] for frame in answers}) == len(answers)
    return {frame["id"]: frame for frame in answers}


@pytest.mark.thorough
@pytest.mark.parametrize("delay", ["0", "0.4"])
def test_frames_poured_into_run_are_all_answered_before_it_exits(bed: Bed, delay: str) -> None:
    data = frames(INITIALIZE, {"method": "notifications/initialized"}, *WORK)
    answers = pour(bed, bed.command(bed.fake(f"--start-delay={delay}")), data)
    assert set(answers) == {"init", *(request["id"] for request in WORK)}
    names = [tool["name"] for tool in answers["list"]["result"]["tools"]]
    assert "fake__echo" in names
    assert answers["echo"]["result"]["structuredContent"] == {"text": "hi"}
    assert answers["slow"]["result"]["structuredContent"] == {"key": "s"}
    assert answers["read"]["result"]["contents"][0]["uri"] == "fake://a"


@pytest.mark.thorough
def test_frames_of_a_2026_client_are_all_answered_too(bed: Bed) -> None:
    requests = [
        {**request, "params": envelope(request.get("params"))} for request in WORK if request["id"] != "ping"
    ]
    answers = pour(bed, bed.command(bed.fake("--era=modern")), frames(*requests))
    assert "fake__echo" in [tool["name"] for tool in answers["list"]["result"]["tools"]]
    assert all("result" in answer for answer in answers.values())
    assert len(answers) == len(requests)


def test_frames_poured_into_wrap_are_all_answered_before_it_exits(bed: Bed) -> None:
    calls = [
        {"id": n, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": str(n)}}}
        for n in range(50)
    ]
    data = frames(INITIALIZE, {"method": "notifications/initialized"}, *calls)
    answers = pour(bed, bed.wrap_command(bed.fake("--start-delay=0.2")), data)
    assert [answers[n]["result"]["structuredContent"]["text"] for n in range(50)] == [
        str(n) for n in range(50)
    ]


def test_the_last_frame_needs_no_line_end(bed: Bed) -> None:
    data = frames(INITIALIZE, {"id": "ping", "method": "ping"}).rstrip(b"\n")
    assert pour(bed, bed.command(), data)["ping"]["result"] == {}


def test_no_frame_at_all_is_a_clean_session(bed: Bed) -> None:
    assert pour(bed, bed.command(bed.fake()), b"") == {}


def test_a_call_that_outlasts_the_drain_is_answered_as_unknown(bed: Bed) -> None:
    bed.settings("[limits]\ndrain_s = 0.2\n")
    fake = bed.fake()
    client = bed.run(fake)
    hang = client.begin_use("fake__hang", {"key": "k"})
    client.use("fake__echo")
    client.close_stdin()
    error = client.wait(hang)["error"]
    assert error["code"] == -31094
    assert (error["data"]["code"], error["data"]["outcome"]) == ("closing", "unknown")
    assert client.wait_end() == 0
    assert fake.dispatches.count("hang k") == 1


def gone(pid: int, within: float = 5) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.thorough
def test_no_process_outlives_the_session(bed: Bed) -> None:
    client = bed.run(bed.fake("--stubborn"), bed.fake(name="two"))
    pids = [client.use_data(f"{name}__whoami")["pid"] for name in ("fake", "two")]
    pids.append(client.use_data("two__grandchild", {"seconds": 60})["pid"])
    pids += [row["pid"] for row in client.health()["mounts"]]
    assert client.close() == 0
    assert all(gone(pid) for pid in pids)


def test_a_terminated_host_answers_what_waits_and_exits_cleanly(bed: Bed) -> None:
    client: Client = bed.run(bed.fake())
    pid = client.use_data("fake__whoami")["pid"]
    slow = client.begin_use("fake__slow", {"ms": 200, "key": "s"})
    client.use("fake__echo")
    client.process.send_signal(signal.SIGTERM)
    assert client.wait(slow)["result"]["structuredContent"] == {"key": "s"}
    assert client.wait_end() == 0
    assert gone(pid)


def test_a_killed_host_leaves_no_server_behind(bed: Bed) -> None:
    client = bed.run(bed.fake("--stubborn"))
    pid = client.use_data("fake__whoami")["pid"]
    os.kill(client.pid, signal.SIGKILL)
    client.wait_end()
    assert gone(pid)


def test_a_host_whose_client_no_longer_reads_ends_with_its_servers(bed: Bed) -> None:
    fake = bed.fake()
    host = subprocess.Popen(
        bed.command(fake), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=bed.environ, cwd=bed.workspace
    )
    assert host.stdin is not None
    assert host.stdout is not None
    whoami = {"id": 1, "method": "tools/call", "params": {"name": "fake__whoami", "arguments": {}}}
    host.stdin.write(frames(INITIALIZE, {"method": "notifications/initialized"}, whoami))
    host.stdin.flush()
    host.stdout.readline()
    pid = json.loads(host.stdout.readline())["result"]["structuredContent"]["pid"]
    host.stdout.close()
    host.stdin.write(frames({"id": 2, "method": "ping"}))
    host.stdin.flush()
    assert host.wait(10) == 0
    host.stdin.close()
    assert gone(pid)


def test_the_supported_versions_name_both_eras(bed: Bed) -> None:
    answers = pour(bed, bed.command(), frames({"id": 1, "method": "server/discover", "params": envelope()}))
    assert {MODERN, HANDSHAKE} <= set(answers[1]["result"]["supportedVersions"])
