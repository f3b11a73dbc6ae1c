"""`perdure serve` as its clients and its neighbours meet it: its store, its counters, and what it does not do twice."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.testing import fake_server
from perdure.testing.http_client import HttpClient, ServeProcess

FAKE = shlex.join([sys.executable, "-P", "-S", fake_server.__file__])
WORK = Path(__file__).parent / "servers" / "counted_work.py"
JSON = {"render": "json", "detail": "full"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path, "--metrics", "--mount", f"s={FAKE}")
    yield process
    assert process.stop() == 0


def opened(served: ServeProcess) -> HttpClient:
    client = served.client()
    client.initialize()
    return client


def metrics(served: ServeProcess) -> dict[str, float]:
    """Every series by its name; a series that comes twice is none."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/metrics")
    found: dict[str, float] = {}
    for line in connection.getresponse().read().decode().splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            assert series not in found, series
            found[series] = float(value)
    connection.close()
    return found


def telemetry(client: HttpClient) -> Any:
    return client.call("telemetry", JSON)["structuredContent"]


def calls(series: dict[str, float], outcome: str) -> float:
    return series[f'perdure_requests_total{{method="tools/call",outcome="{outcome}"}}']


# --- counting ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_tool_that_fails_is_counted_as_an_error_everywhere(served: ServeProcess) -> None:
    client = opened(served)
    assert client.call("read", {"path": "not there"})["isError"]
    assert not client.call("safe_write", {"path": "a", "content": '"isError": true\n'}).get("isError")
    assert not client.call("read", {"path": "a"}).get("isError")
    totals = telemetry(client)["totals"]
    assert (totals["errors"], totals["tool_errors"], totals["response_errors"]) == (1, 1, 0)
    series = metrics(served)
    assert calls(series, "tool_errors") == 1
    ended = sum(value for name, value in series.items() if 'method="tools/call",outcome=' in name)
    assert ended == 4  # each in one way, the look at the telemetry too
    command = [sys.executable, "-P", "-m", "perdure", "top", "--once"]
    env = {**os.environ, "PERDURE_HOME": str(served.root / "home")}
    end = time.monotonic() + 20
    while "1 error" not in (said := subprocess.run(command, env=env, capture_output=True, text=True).stdout):
        assert time.monotonic() < end, said  # it counts once a second
    page = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    page.request("GET", "/")
    shown = page.getresponse().read().decode()
    page.close()
    assert re.search(r"Failed calls in 5 min</dt><dd><a[^>]*>1 \(\d+%\)<", shown)


@pytest.mark.thorough
def test_a_wait_is_no_latency(served: ServeProcess) -> None:
    client = opened(served)
    client.call("get_state", {"key": "k"})
    waited = client.call("state_wait", {"key": "k", "after": 0, "timeout_s": 0.05, **JSON})
    assert not waited.get("isError")
    series = metrics(served)
    assert calls(series, "successes") == 2
    assert series['perdure_request_seconds_count{method="tools/call"}'] == 1


@pytest.mark.thorough
def test_names_that_clients_choose_do_not_break_the_metrics(served: ServeProcess) -> None:
    client = opened(served)
    for name in ('x"y\nz\\', "a" * 99 + "\\", "b" * 110 + "1", "b" * 110 + "2", "c" * 99 + '"'):
        client.request(name)
    series = metrics(served)
    assert sum(one.startswith('perdure_request_seconds_count{method="bbb') for one in series) == 1


def test_one_killed_process_is_one_fault(served: ServeProcess) -> None:
    clients = [opened(served) for _ in range(3)]
    for client in clients:
        client.call("s__echo", {"text": "x"})
    clients[0].call("s__die", {"signal": "SIGKILL"})
    for client in clients:
        client.call("s__echo", {"text": "x"})
    assert metrics(served)["perdure_faults_total"] == 1


@pytest.mark.thorough
def test_the_session_of_the_dashboard_is_not_counted(served: ServeProcess) -> None:
    opened(served)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.request("GET", "/journal")
    assert connection.getresponse().read()
    connection.close()
    series = metrics(served)
    assert series["perdure_sessions"] == 1
    assert 'perdure_requests_total{method="tools/call",outcome="successes"}' not in series


# --- the store of its sessions ------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_two_at_one_port_and_two_addresses_leave_each_other_alone(tmp_path: Path) -> None:
    one = ServeProcess(tmp_path, "--mount", f"s={FAKE}")
    command = [sys.executable, "-P", "-m", "perdure", "serve", "--host", "127.0.0.2", "--port", str(one.port)]
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home")}
    client = opened(one)
    client.call("s__echo", {"text": "x"})
    pids = _children(one.process.pid)
    other = subprocess.Popen([*command, "--workspace", str(one.workspace)], env=env, stderr=subprocess.PIPE)
    try:
        assert other.stderr is not None
        assert b"/mcp" in other.stderr.readline()  # 127.0.0.2 is this machine: it needs no token
        assert _children(one.process.pid) == pids
        line = http.client.HTTPConnection("127.0.0.2", one.port, timeout=30)
        ping = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        line.request("POST", "/mcp", ping, {**headers, "Mcp-Session-Id": client.session or ""})
        assert line.getresponse().status == 404  # a session of the first is none of the second
        line.close()
    finally:
        other.terminate()
        other.wait(30)
        if other.stderr is not None:
            other.stderr.close()
    assert one.stop() == 0


def _children(pid: int) -> set[str]:
    return set(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


@pytest.mark.thorough
def test_its_files_are_its_owners_alone(served: ServeProcess) -> None:
    opened(served).call("safe_write", {"path": "a", "content": "x\n"})
    folder = served.root / "home" / "serve"
    files = [path for path in folder.iterdir() if path.name.startswith("sessions-")]
    assert len(files) >= 3
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.thorough
def test_a_guardian_that_died_is_replaced(served: ServeProcess) -> None:
    client = opened(served)
    client.call("s__echo", {"text": "x"})
    before = _children(served.process.pid)
    guardian = next(pid for pid in before if _command(pid) == _command(str(served.process.pid)))
    os.kill(int(guardian), signal.SIGKILL)
    end = time.monotonic() + 20
    while guardian in (now := _children(served.process.pid)) or len(now) < len(before):
        assert time.monotonic() < end
        time.sleep(0.01)
    served.kill()
    while any(os.path.exists(f"/proc/{pid}/cmdline") and _command(pid) for pid in now):
        assert time.monotonic() < end
        time.sleep(0.01)
    served.process = served._started()


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# --- ids, and answers that were not read --------------------------------------------------------------------------


def test_an_id_beyond_64_bits_is_an_id(served: ServeProcess) -> None:
    client = opened(served)
    for identity in (2**63, 2**64, -(2**64), 10**60):
        params = {"name": "s__effect", "arguments": {"name": "x"}}
        answer = client.request("tools/call", params, identity).last
        assert answer["id"] == identity
        assert "result" in answer


@pytest.mark.thorough
def test_a_pipelined_answer_that_was_not_read_is_kept(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    served = ServeProcess(tmp_path, "--mount", "w=" + shlex.join([sys.executable, str(WORK), str(ledger)]))
    client = opened(served)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    line.connect(("127.0.0.1", served.port))
    params = {"name": "w__work", "arguments": {"name": "first", "size": 50_000}}
    first = {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params}
    others = [
        {**first, "id": number, "params": {"name": "w__work", "arguments": {"name": name}}}
        for number, name in ((78, "second"), (79, "third"))
    ]
    line.sendall(b"".join(_http(client, msgspec.json.encode(one)) for one in (first, *others)))
    end = time.monotonic() + 20
    while not ledger.exists() or "third" not in ledger.read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()
    assert "result" in client.post(first).last
    assert ledger.read_text().splitlines() == ["first", "second", "third"]
    assert served.stop() == 0


def _http(client: HttpClient, body: bytes) -> bytes:
    return (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{client.port}\r\naccept: application/json, text/event-stream\r\n"
        f"content-type: application/json\r\nmcp-session-id: {client.session}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


# --- a full disk --------------------------------------------------------------------------------------------------


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[ServeProcess]:
    """A serving process whose own files are on a small file system of their own."""
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    process = None
    try:
        process = ServeProcess(tmp_path, "--mount", f"s={FAKE}")
        yield process
    finally:
        if process is not None:
            process.stop()
        subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.thorough
def test_on_a_full_disk_every_request_is_answered_in_words(cramped: ServeProcess) -> None:
    client = opened(cramped)
    params = {"name": "s__effect", "arguments": {"name": "x"}}
    assert "result" in client.request("tools/call", params).last
    ballast = cramped.root / "home" / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    large = {**params, "arguments": {"name": "x", "more": "y" * 200_000}}
    refused = client.request("tools/call", large)
    assert refused.status == 200
    assert refused.last["error"]["data"]["outcome"] == "not_started"
    assert client.request("ping").last["result"] == {}
    assert "result" in client.request("tools/call", {"name": "s__echo", "arguments": {"text": "x"}}).last
    newcomer = cramped.client()
    assert newcomer.initialize().status == 200
    ballast.unlink()
    assert "result" in client.request("tools/call", large).last
