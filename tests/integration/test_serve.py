"""`perdure serve`: real clients over real sockets, one set of servers behind them, and `kill -9` in between."""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiled_rules import put_compiled_rules
from harness.host import serve_storm
from harness.processes import wait_for
from perdure.testing import fake_server
from perdure.testing.fake_ledger import lines
from perdure.testing.http_client import HttpClient, ServeProcess, envelope
from perdure.testing.raw_client import RawClient
from testbed import trusted

JSON = {"render": "json", "detail": "full"}
SOON = 30.0  # seconds: for what comes at once on an idle machine


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """For requests that are refused and leave nothing behind."""
    process = ServeProcess(tmp_path_factory.mktemp("shared"))
    yield process
    assert process.stop() == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    put_compiled_rules(tmp_path / "home")
    process = ServeProcess(tmp_path)
    yield process
    assert process.stop() == 0


def opened(served: ServeProcess) -> HttpClient:
    client = served.client()
    client.initialize()
    return client


def worker_pids(client: HttpClient) -> list[int]:
    mounts = client.call("health", JSON)["structuredContent"]["mounts"]
    return [mount["pid"] for mount in mounts]


# --- the process -------------------------------------------------------------------------------------------


def test_every_answer_says_when_it_was_made(served: ServeProcess) -> None:
    line = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    line.request("GET", "/healthz")
    said = line.getresponse().getheader("date")
    line.close()
    assert said is not None
    assert abs(parsedate_to_datetime(said).timestamp() - time.time()) < 60


# --- sessions ----------------------------------------------------------------------------------------------


def test_a_session_opens_works_and_ends(served: ServeProcess) -> None:
    client = opened(served)
    assert client.session
    assert len(client.request("tools/list").last["result"]["tools"]) > 40
    assert not client.call("safe_write", {"path": "a", "content": "x\n"}).get("isError")
    assert (served.workspace / "a").read_text() == "x\n"
    assert client.send("DELETE").status == 204
    assert client.request("ping").status == 404


def test_sessions_share_their_server_and_keep_their_affairs_apart(served: ServeProcess) -> None:
    one, other = opened(served), opened(served)
    assert worker_pids(one) == worker_pids(other)
    one.call("safe_write", {"path": "a", "content": "1\n"})
    other.call("safe_write", {"path": "b", "content": "2\n"})
    rows = one.call("journal_tail", JSON)["structuredContent"]["entries"]
    assert len({row["session"] for row in rows}) == 2


def test_the_same_id_in_two_sessions_is_two_requests(served: ServeProcess) -> None:
    one, other = opened(served), opened(served)
    assert not one.call("set_state", {"key": "one", "value": "1"}, identity=7).get("isError")
    assert not other.call("set_state", {"key": "other", "value": "2"}, identity=7).get("isError")
    keys = one.call("list_state", JSON)["structuredContent"]["keys"]
    assert [row["key"] for row in keys] == ["one", "other"]


def test_a_server_that_dies_comes_back_for_everyone(served: ServeProcess) -> None:
    one, other = opened(served), opened(served)
    (pid,) = worker_pids(one)
    os.kill(pid, signal.SIGKILL)
    for client in (one, other):
        assert not client.call("set_state", {"key": "k", "value": "1"}).get("isError")
    assert worker_pids(one) == worker_pids(other) != [pid]


def test_a_modern_client_needs_no_session(served: ServeProcess) -> None:
    client = served.client()
    found = client.modern("server/discover").last["result"]
    assert "2026-07-28" in found["supportedVersions"]
    answer = client.modern("tools/call", {"name": "set_state", "arguments": {"key": "k", "value": "1"}})
    assert answer.status == 200
    assert answer.last["result"]["resultType"] == "complete"
    assert "mcp-session-id" not in answer.headers


def test_modern_clients_may_use_the_same_id_at_the_same_time(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path))
    try:
        answers: list[Any] = []

        def ask(key: str) -> None:
            arguments = {"key": key, "linger_ms": 200}
            params = {"name": "s__effect", "arguments": arguments}
            answer = served.client().modern("tools/call", params, identity=1)
            answers.append((key, answer.last))

        threads = [threading.Thread(target=ask, args=(f"k{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {key for key, _ in answers} == {"k0", "k1", "k2", "k3"}
        assert all(frame["id"] == 1 and "result" in frame for _, frame in answers)
        assert sorted(_effects(tmp_path)) == [f"effect k{n}" for n in range(4)]
    finally:
        served.stop()


# --- what a restart leaves ---------------------------------------------------------------------------------


def test_a_session_outlives_the_process_that_served_it(served: ServeProcess) -> None:
    client = opened(served)
    client.call("safe_write", {"path": "a", "content": "x\n"})
    served.restart()
    assert client.request("ping").last["result"] == {}
    assert client.call("read", {"path": "a", **JSON})["structuredContent"]["content"] == "x\n"
    rows = client.call("journal_tail", JSON)["structuredContent"]["entries"]
    assert {row["client"] for row in rows} == {"raw"}


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_call_that_was_running_when_we_were_killed_is_not_done_twice(tmp_path: Path, era: str) -> None:
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path))
    try:
        client = opened(served) if era == "handshake" else served.client()
        params = {"name": "s__effect", "arguments": {"key": "once", "linger_ms": 60_000}}

        def ask() -> Any:
            if era == "modern":
                return client.modern("tools/call", params, identity=99)
            return client.request("tools/call", params, identity=99)

        def lost() -> None:
            with pytest.raises((OSError, http.client.HTTPException)):
                ask()

        running = threading.Thread(target=lost)
        running.start()
        assert wait_for(lambda: bool(_dispatches(tmp_path)), SOON)
        served.restart()
        running.join()
        answer = ask().last
        assert answer["error"]["code"] == -31094
        assert answer["error"]["data"]["outcome"] == "unknown"
        assert len(_dispatches(tmp_path)) == 1
        again = client.request("ping") if era == "handshake" else client.modern("server/discover")
        assert "result" in again.last
    finally:
        served.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_write_whose_answer_was_lost_is_answered_from_the_journal(served: ServeProcess, era: str) -> None:
    """Killed at a random moment, tried again until it is answered: the line is there once."""
    client = opened(served) if era == "handshake" else served.client()
    for number in range(8):
        arguments = {"path": "log", "content": f"line {number}\n", "mode": "append"}
        params = {"name": "safe_write", "arguments": arguments}

        def ask(params: Any = params, number: int = number) -> Any:
            if era == "modern":
                return client.modern("tools/call", params, identity=1000 + number)
            return client.request("tools/call", params, identity=1000 + number)

        killer = threading.Timer(0.002 * number, served.kill)
        killer.start()
        try:
            answer = ask().last
        except (OSError, http.client.HTTPException):
            answer = None
        killer.join()
        served.process = served._started()
        if answer is None:
            answer = ask().last
        assert "result" in answer, answer
        assert not answer["result"].get("isError"), answer
    assert (served.workspace / "log").read_text() == "".join(f"line {n}\n" for n in range(8))


# --- rolling over, and ending ------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_reload_gives_every_session_a_new_server_and_loses_no_call(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path))
    try:
        clients = [opened(served), opened(served)]
        before = {client.call("s__whoami", {})["structuredContent"]["pid"] for client in clients}
        assert len(before) == 1
        slow: list[Any] = []
        running = threading.Thread(
            target=lambda: slow.append(clients[0].call("s__slow", {"ms": 1500, "key": "k"}))
        )
        running.start()
        assert wait_for(lambda: any("slow" in line for line in _dispatches(tmp_path)), SOON)
        served.process.send_signal(signal.SIGHUP)
        assert wait_for(
            lambda: clients[1].call("s__whoami", {})["structuredContent"]["pid"] not in before, SOON
        )
        running.join()
        assert not slow[0].get("isError"), slow
        after = {client.call("s__whoami", {})["structuredContent"]["pid"] for client in clients}
        assert len(after) == 1
        assert not after & before
        assert worker_pids(clients[0]) == worker_pids(clients[1])
    finally:
        served.stop()


@pytest.mark.thorough
def test_it_ends_although_calls_hang_streams_are_open_and_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    trusted(tmp_path / "workspace" / "perdure.toml", "[serve.limits]\ndrain_s = 1\n", tmp_path / "home")
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path), "--log-level", "debug")
    client = opened(served)
    standing = client.begin("GET")
    hanging = client.begin("tools/call", {"name": "s__hang", "arguments": {}})
    next(hanging)
    with RawClient(
        [sys.executable, "-P", "-m", "perdure", "attach"],
        env={**os.environ, "PERDURE_HOME": str(served.root / "home")},
    ) as attached:
        attached.initialize()
        attached.start_call("s__hang", {})
        assert served.stop() == 0
    standing.leave()
    hanging.leave()


def test_an_answer_that_its_client_did_not_wait_for_is_there_when_it_asks_again(tmp_path: Path) -> None:
    """It hung up long before; the server answered within the time in which it does not look."""
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path))
    try:
        client = opened(served)
        client.call("s__whoami", {})
        for number in range(5):
            params = {"name": "s__effect", "arguments": {"key": f"k{number}", "linger_ms": 60}}
            message = {"jsonrpc": "2.0", "id": 500 + number, "method": "tools/call", "params": params}
            body = msgspec.json.encode(message)
            head = (
                f"POST /mcp HTTP/1.1\r\nHost: localhost:{served.port}\r\nAccept: application/json, text/event-stream\r\n"
                f"Content-Type: application/json\r\nMcp-Session-Id: {client.session}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            with socket.create_connection(("127.0.0.1", served.port)) as line:
                line.sendall(head.encode() + body)
            assert wait_for(lambda count=number: len(_effects(tmp_path)) > count, SOON)
            answer = client.request("tools/call", params, identity=500 + number).last
            assert "result" in answer
        assert len(_effects(tmp_path)) == 5
    finally:
        served.stop()


# --- HTTP --------------------------------------------------------------------------------------------------


def test_a_body_on_several_lines_is_one_frame(served: ServeProcess) -> None:
    client = opened(served)
    body = b'{\n  "jsonrpc": "2.0",\r\n  "id": 5,\n  "method": "tools/call",\n  "params": {\n    "name": "set_state",\n'
    body += b'    "arguments": {"key": "a\\nb",\n "value": "1"}\n  }\n}\n'
    assert not client.send("POST", body).last["result"].get("isError")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:80"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Accept": "text/html"}, 406),
        ({"Content-Type": "text/plain"}, 415),
        ({"Mcp-Session-Id": "nobody"}, 404),
    ],
)
def test_who_must_not_speak_to_us_is_told_so(
    shared: ServeProcess, headers: dict[str, str], status: int
) -> None:
    client = opened(shared)
    answer = client.send("POST", _ping(), headers)
    assert answer.status == status
    # The sentence names the header that is wrong.
    assert next(iter(headers)) in answer.last["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"", 400),
        (b"\xff", 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","id":2}', 400),
        (b'{"jsonrpc":"2.0","id":1}', 400),
    ],
)
def test_what_is_no_message_is_refused_and_nothing_else_happens(
    shared: ServeProcess, body: bytes, status: int
) -> None:
    client = opened(shared)
    assert client.send("POST", body).status == status
    assert client.request("ping").last["result"] == {}


def test_a_body_over_the_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    trusted(tmp_path / "workspace" / "perdure.toml", "[limits]\nframe_bytes = 100000\n", tmp_path / "home")
    served = ServeProcess(tmp_path)
    try:
        client = opened(served)
        large = {"name": "safe_write", "arguments": {"path": "a", "content": "x" * 200_000}}
        assert client.request("tools/call", large).status == 413
        assert client.request("ping").last["result"] == {}
    finally:
        served.stop()


def test_a_token_is_asked_for_and_compared(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, env={"PERDURE_TOKEN": "s3cret-token"})
    try:
        unknown = served.client().send("POST", _ping())
        assert unknown.status == 401
        assert "Authorization: Bearer TOKEN" in unknown.last["error"]["message"]
        assert served.client(Authorization="Bearer wrong").send("POST", _ping()).status == 401
        client = served.client(Authorization="Bearer s3cret-token")
        client.initialize()
        assert client.request("ping").last["result"] == {}
    finally:
        served.stop()
    assert b"s3cret" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_listening_beyond_loopback_needs_a_token() -> None:
    env = {key: value for key, value in os.environ.items() if key != "PERDURE_TOKEN"}
    command = [sys.executable, "-P", "-m", "perdure", "serve", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert "token" in done.stderr


def test_a_port_that_is_taken_is_said_so(served: ServeProcess) -> None:
    command = [sys.executable, "-P", "-m", "perdure", "serve", "--port", str(served.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 4
    assert str(served.port) in done.stderr


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Mcp-Method": "tools/list"}, -32020),
        ({"Mcp-Name": "other"}, -32020),
        ({"MCP-Protocol-Version": "2099-01-01"}, -32020),
    ],
)
def test_headers_that_contradict_the_body_are_refused(
    shared: ServeProcess, change: dict[str, str], code: int
) -> None:
    answer = shared.client().modern("tools/call", {"name": "health", "arguments": {}}, **change)
    assert (answer.status, answer.last["error"]["code"]) == (400, code)


def test_a_modern_answer_has_the_status_of_its_error(served: ServeProcess) -> None:
    client = served.client()
    assert client.modern("no/such/method").status == 404
    assert client.modern("tools/call", {"name": "no_such_tool", "arguments": {}}).status == 400


# --- streams -----------------------------------------------------------------------------------------------


def test_progress_comes_on_the_stream_of_its_call(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--mount", _fake(tmp_path))
    try:
        client = opened(served)
        params = {
            "name": "s__progress",
            "arguments": {"steps": 3},
            "_meta": {"progressToken": 0},
        }
        frames = client.request("tools/call", params).frames
        said = [frame for frame in frames if frame.get("method") == "notifications/progress"]
        assert [frame["params"]["progressToken"] for frame in said] == [0, 0, 0]
        assert "result" in frames[-1]
    finally:
        served.stop()


def test_a_wrapped_server_is_served_under_its_own_names(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--wrap", _fake(tmp_path).removeprefix("s="))
    try:
        client = opened(served)
        names = {tool["name"] for tool in client.request("tools/list").last["result"]["tools"]}
        assert "echo" in names
        assert "safe_write" not in names
    finally:
        served.stop()


def _ping() -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": envelope()}})


def _fake(root: Path) -> str:
    ledgers = root / "ledgers"
    ledgers.mkdir(exist_ok=True)
    kept = [f"--{kind}={ledgers / kind}" for kind in ("effects", "dispatches", "state")]
    return "s=" + shlex.join((sys.executable, "-S", fake_server.__file__, *kept))


def _dispatches(root: Path) -> list[str]:
    return lines(str(root / "ledgers" / "dispatches"))


def _effects(root: Path) -> list[str]:
    found = lines(str(root / "ledgers" / "effects"))
    return [line.rpartition(" pid=")[0] or line for line in found]


# --- a storm -----------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_no_session_and_no_line_is_lost_while_we_are_killed_again_and_again(tmp_path: Path) -> None:
    tallies, violations = serve_storm.storm(tmp_path, clients=4, kills=4)
    assert violations == []
    assert all(tally.acknowledged for tally in tallies)
    assert sum(tally.retries for tally in tallies) > 0, "nobody noticed"
