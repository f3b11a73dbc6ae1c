"""What somebody with bad manners can send to `perdure serve`, from real sockets, and that everybody else is served."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import fake_server
from perdure.testing.fake_ledger import lines
from perdure.testing.http_client import HttpClient, ServeProcess
from testbed import trusted

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "crowd", "version": "1"},
    },
}


def start(tmp_path: Path, *options: str, env: dict[str, str] | None = None, **limits: float) -> ServeProcess:
    (tmp_path / "workspace").mkdir(exist_ok=True)
    told = [f"{name} = {value}\n" for name, value in limits.items()]
    text = "[serve.limits]\n" + "".join(told)
    trusted(tmp_path / "workspace" / "perdure.toml", text, tmp_path / "home")
    return ServeProcess(tmp_path, *options, env=env)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """For requests that are refused and leave nothing behind."""
    process = start(tmp_path_factory.mktemp("shared"))
    yield process
    assert process.stop() == 0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    process = start(tmp_path)
    yield process
    assert process.stop() == 0


def opened(served: ServeProcess) -> HttpClient:
    client = served.client()
    client.initialize()
    return client


def connected(served: ServeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def everything(line: socket.socket) -> bytes:
    """What the server says until it hangs up."""
    parts = []
    try:
        while part := line.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    line.close()
    return b"".join(parts)


def said(served: ServeProcess, request: bytes) -> bytes:
    line = connected(served)
    line.sendall(request)
    return everything(line)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def head(served: ServeProcess, **headers: str) -> bytes:
    found = {
        "Host": f"127.0.0.1:{served.port}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    written = "".join(f"{name}: {value}\r\n" for name, value in found.items())
    return f"POST /mcp HTTP/1.1\r\n{written}".encode()


# --- slowness ----------------------------------------------------------------------------------------------


def drip(line: socket.socket, piece: bytes) -> bytes:
    """Send a byte now and then for as long as somebody listens; what was said at last."""
    line.settimeout(0.05)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            line.sendall(piece)
            found = line.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return b""
        line.settimeout(30)
        return found + everything(line)
    raise AssertionError("it listens for ever")


def one_answer(line: socket.socket) -> int:
    """The status of the next answer, of which everything is read."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += _received(line, 1)
    size = int(found.lower().partition(b"content-length: ")[2].split()[0])
    while size:
        size -= len(_received(line, size))
    return status(found)


def _received(line: socket.socket, size: int) -> bytes:
    found = line.recv(size)
    assert found, "the server hung up"
    return found


@pytest.mark.thorough
def test_who_sends_a_head_byte_by_byte_is_cut_off_and_others_are_served(tmp_path: Path) -> None:
    served = start(tmp_path, header_s=1)
    try:
        client = opened(served)
        slow = [connected(served) for _ in range(100)]
        for line in slow:
            line.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127")
        assert client.request("ping").last["result"] == {}
        assert status(drip(slow[0], b"1")) == 408
        for line in slow[1:]:
            assert status(everything(line)) == 408
        assert client.request("ping").last["result"] == {}
    finally:
        served.stop()


@pytest.mark.thorough
def test_the_second_head_of_a_connection_must_come_in_time_too(tmp_path: Path) -> None:
    served = start(tmp_path, header_s=1)
    try:
        line = connected(served)
        line.sendall(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        assert one_answer(line) == 200
        line.sendall(b"GET /hea")
        assert status(drip(line, b"l")) == 408
    finally:
        served.stop()


@pytest.mark.thorough
def test_a_body_that_drips_is_refused(tmp_path: Path) -> None:
    served = start(tmp_path, body_s=1)
    try:
        client = opened(served)
        line = connected(served)
        line.sendall(head(served, Content_Length="100000") + b"\r\n{")
        assert status(drip(line, b" ")) == 408
        assert client.request("ping").last["result"] == {}
    finally:
        served.stop()


@pytest.mark.thorough
def test_a_body_that_nobody_wants_ends_with_its_answer(tmp_path: Path) -> None:
    served = start(tmp_path, header_s=1)
    try:
        line = connected(served)
        request = head(served, Content_Length="100000").replace(b"/mcp", b"/healthz")
        line.sendall(request + b"\r\n{")
        assert one_answer(line) in (404, 405)
        assert drip(line, b" ") == b""
    finally:
        served.stop()


def test_connections_are_counted_and_the_next_one_is_told(tmp_path: Path) -> None:
    served = start(tmp_path, connections=20, header_s=2)
    try:
        idle = [connected(served) for _ in range(20)]
        answer = said(served, b"")
        assert status(answer) == 503
        assert b"retry-after" in answer.lower()
        for line in idle:
            line.close()
        until = time.monotonic() + 30
        while status(said(served, _health(served))) != 200:
            assert time.monotonic() < until
    finally:
        served.stop()


def _health(served: ServeProcess) -> bytes:
    return f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n".encode()


# --- crowds ------------------------------------------------------------------------------------------------


class Crowd:
    """Opens sessions as fast as it can on one connection."""

    def __init__(self, served: ServeProcess) -> None:
        self._line = connected(served)
        self._file = self._line.makefile("rb")
        self._served = served

    def open(self, message: dict[str, Any] = INITIALIZE, **headers: str) -> tuple[int, dict[str, str], Any]:
        body = json.dumps(message).encode()
        self._line.sendall(head(self._served, Content_Length=str(len(body)), **headers) + b"\r\n" + body)
        code = int(self._file.readline().split()[1])
        found = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            found[name.lower()] = value
        return code, found, json.loads(self._file.read(int(found["content-length"])))

    def close(self) -> None:
        self._file.close()
        self._line.close()


def memory_kb(pid: int) -> int:
    facts = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(fact.split()[1]) for fact in facts if fact.startswith("VmRSS"))


@pytest.mark.thorough
def test_ten_thousand_sessions_take_a_bounded_memory_and_the_first_is_still_there(tmp_path: Path) -> None:
    served = start(
        tmp_path, sessions_in_memory=200, opening_rate=100_000, session_rate=100_000, address_rate=100_000
    )
    try:
        first = opened(served)
        first.call("set_state", {"key": "k", "value": "1"})
        crowd = Crowd(served)
        for _ in range(500):
            assert crowd.open()[0] == 200
        before = memory_kb(served.process.pid)
        names = {crowd.open()[1]["mcp-session-id"] for _ in range(9_500)}
        assert len(names) == 9_500
        assert memory_kb(served.process.pid) - before < 20_000, "200 in memory, whoever comes"
        assert first.request("ping").last["result"] == {}
        crowd.close()
        served.restart()
        assert first.request("ping").last["result"] == {}
    finally:
        served.stop()


@pytest.mark.thorough
def test_clients_of_2026_under_ever_new_names_take_a_bounded_memory(tmp_path: Path) -> None:
    served = start(tmp_path, sessions_in_memory=50, session_rate=100_000, address_rate=100_000)
    try:
        crowd = Crowd(served)

        def come(number: int) -> int:
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": f"client {number}", "version": "1"},
            }
            message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
            routing = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "server/discover"}
            return crowd.open(message, **routing)[0]

        assert {come(number) for number in range(200)} == {200}
        before = memory_kb(served.process.pid)
        assert {come(number) for number in range(200, 2_000)} == {200}
        assert memory_kb(served.process.pid) - before < 15_000
        crowd.close()
    finally:
        served.stop()


@pytest.mark.thorough
def test_who_comes_when_all_sessions_are_taken_is_refused_in_words(tmp_path: Path) -> None:
    served = start(tmp_path, sessions=30)
    try:
        client = opened(served)
        crowd = Crowd(served)
        until = time.monotonic() + 30
        while (answer := crowd.open())[0] == 200:
            assert time.monotonic() < until, "how many there are is counted once a second"
            time.sleep(0.02)
        code, headers, body = answer
        assert code == 503
        assert int(headers["retry-after"]) > 0
        assert body["error"]["data"] == {
            "class": "resource",
            "code": "too_many_sessions",
            "outcome": "not_started",
            "retry": "later",
        }
        assert client.request("ping").last["result"] == {}
        assert client.send("DELETE").status == 204
    finally:
        served.stop()


def test_who_opens_sessions_too_fast_is_told_to_wait(tmp_path: Path) -> None:
    served = start(tmp_path, opening_rate=1)
    try:
        crowd = Crowd(served)
        answers = [crowd.open() for _ in range(12)]
        assert answers[0][0] == 200
        code, headers, body = answers[-1]
        assert (code, body["error"]["data"]["code"]) == (429, "too_fast")
        assert int(headers["retry-after"]) >= 1
    finally:
        served.stop()


def test_who_asks_too_often_is_told_to_wait_and_another_session_is_not(tmp_path: Path) -> None:
    served = start(tmp_path, session_rate=4)
    try:
        one, other = opened(served), opened(served)
        answers = [one.request("ping") for _ in range(20)]
        late = next(answer for answer in answers if answer.status == 429)
        assert int(late.headers["retry-after"]) >= 1
        assert late.last["error"]["data"]["retry"] == "later"
        assert other.request("ping").last["result"] == {}
    finally:
        served.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_client_has_so_many_requests_waiting_and_no_more(tmp_path: Path, era: str) -> None:
    ledger = tmp_path / "dispatches"
    command = shlex.join((sys.executable, "-S", fake_server.__file__, f"--dispatches={ledger}"))
    served = start(tmp_path, "--mount", f"s={command}", session_requests=2)
    try:
        client = opened(served) if era == "handshake" else served.client()
        ask = client.request if era == "handshake" else client.modern
        call = {"name": "s__slow", "arguments": {"ms": 3000, "key": "k"}}
        threads = [threading.Thread(target=ask, args=("tools/call", call)) for _ in range(2)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while len(lines(str(ledger))) < 2:
            assert time.monotonic() < until
        answer = ask("tools/call", call)
        assert (answer.status, answer.last["error"]["data"]["code"]) == (429, "too_many_pending")
        for thread in threads:
            thread.join()
        assert ask("tools/list").status == 200
    finally:
        served.stop()


# --- too large, or not what it says ------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(tmp_path: Path) -> None:
    served = start(tmp_path, body_bytes=100_000)
    try:
        client = opened(served)
        assert status(said(served, head(served, Content_Length="100001") + b"\r\n")) == 413
        line = connected(served)
        line.sendall(head(served, Transfer_Encoding="chunked") + b"\r\n")
        for _ in range(15):
            line.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert status(line.recv(65536)) == 413
        line.close()
        assert client.request("ping").last["result"] == {}
    finally:
        served.stop()


def test_a_head_that_is_too_large_is_refused(served: ServeProcess) -> None:
    assert status(said(served, head(served, X_Large="x" * 100_000))) == 431
    assert status(said(served, _health(served))) == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    ],
)
def test_what_is_not_http_or_two_things_at_once_is_refused(shared: ServeProcess, request_: bytes) -> None:
    answer = said(shared, request_)
    assert answer == b"" or 400 <= status(answer) < 506
    assert status(said(shared, _health(shared))) == 200


def test_a_body_shorter_than_it_says_does_nothing(served: ServeProcess) -> None:
    client = opened(served)
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 9,
            "method": "tools/call",
            "params": {"name": "set_state", "arguments": {"key": "half", "value": "1"}},
        }
    ).encode()
    line = connected(served)
    line.sendall(
        head(served, Content_Length=str(len(body) + 10), Mcp_Session_Id=client.session or "") + b"\r\n" + body
    )
    line.shutdown(socket.SHUT_WR)
    everything(line)
    found = client.call("list_state", {"render": "json", "detail": "full"})["structuredContent"]
    assert found["keys"] == []


# --- where nobody should get -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/static/../../app.py",
        "/static/..%2f..%2fapp.py",
        "/static/%2e%2e/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "//etc/passwd",
        "/mcp/../../etc/passwd",
        "/%00",
        "/.well-known/oauth-protected-resource",
        "http://evil.example/etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(shared: ServeProcess, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{shared.port}\r\nConnection: close\r\n\r\n"
    answer = said(shared, request.encode())
    assert status(answer) in (400, 404)
    assert b"root:" not in answer
    assert b"import " not in answer


@pytest.mark.parametrize("workspace", ["/etc", "..", "../..", "%2e%2e", "workspace/../..", "/"])
def test_no_workspace_but_those_that_are_served_can_be_asked_for(
    shared: ServeProcess, workspace: str
) -> None:
    body = json.dumps(INITIALIZE).encode()
    request = head(shared, Content_Length=str(len(body)), Connection="close") + b"\r\n" + body
    request = request.replace(b"/mcp", b"/mcp?workspace=" + workspace.encode(), 1)
    assert status(said(shared, request)) == 404


@pytest.mark.parametrize("path", ["/mcp", "/healthz", "/metrics", "/", "/journal", "/static/dash.css"])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1@evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "file://"}, 403),
    ],
)
def test_another_name_or_another_page_gets_nothing_anywhere(
    crowded: ServeProcess, path: str, headers: dict[str, str], expected: int
) -> None:
    found = {"Host": f"127.0.0.1:{crowded.port}", "Connection": "close", **headers}
    written = "".join(f"{name}: {value}\r\n" for name, value in found.items())
    assert status(said(crowded, f"GET {path} HTTP/1.1\r\n{written}\r\n".encode())) == expected


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = start(tmp_path_factory.mktemp("crowded"), "--metrics", env={"PERDURE_TOKEN": "the-token"})
    yield process
    assert process.stop() == 0


@pytest.mark.parametrize("path", ["/mcp", "/metrics"])
@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ((), 401),
        (("Bearer wrong",), 401),
        (("Bearer the-token-and-more",), 401),
        (("Bearer the-toke",), 401),
        (("Bearer ",), 401),
        (("Basic dGhlLXRva2Vu",), 401),
        (("the-token",), 401),
        (("Bearer the-token", "Bearer the-token"), 401),
        (("bearer the-token",), 200),
    ],
)
def test_only_the_token_opens(
    crowded: ServeProcess, path: str, authorization: tuple[str, ...], expected: int
) -> None:
    proof = "".join(f"Authorization: {value}\r\n" for value in authorization)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{crowded.port}\r\nConnection: close\r\n{proof}\r\n"
    found = status(said(crowded, request.encode()))
    assert found == expected or (expected == 200 and path == "/mcp" and found == 406)


def test_a_wrong_token_is_in_no_log(crowded: ServeProcess) -> None:
    crowded.client(Authorization="Bearer gu3ss-me").request("ping")
    kept = [
        path.read_bytes() for path in crowded.root.rglob("*") if path.is_file() and os.access(path, os.R_OK)
    ]
    assert not any(b"gu3ss" in data or b"the-token" in data for data in kept)
