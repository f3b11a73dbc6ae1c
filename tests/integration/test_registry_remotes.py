"""Remote servers of the registry: reached through a bridge, with credentials by reference."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from testbed import Bed, Client, Era

pytestmark = pytest.mark.thorough

REMOTE = Path(__file__).parent / "servers" / "remote.py"
TOKEN = "remote-token-that-nobody-sees"


class Remote:
    """A remote server that can go away and come back at its port."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.port = 0
        self.start()

    def start(self) -> None:
        words = [sys.executable, str(REMOTE), self.transport, TOKEN, str(self.port)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def section(self, token: str = "$REMOTE_TOKEN") -> str:
        path = "mcp" if self.transport == "streamable-http" else "sse"
        return (
            f"## far\ntransport: {self.transport}\nurl: http://127.0.0.1:{self.port}/{path}\n"
            f"headers: Authorization=Bearer {token}\n"
        )


@pytest.fixture(params=["streamable-http", "sse"])
def remote(request: pytest.FixtureRequest) -> Iterator[Remote]:
    found = Remote(request.param)
    yield found
    found.stop()


def run(bed: Bed, era: str = "handshake") -> Client:
    bed.environ["REMOTE_TOKEN"] = TOKEN
    return bed.run(era=era)  # type: ignore[arg-type]


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_remote_server_is_used_like_a_local_one(bed: Bed, remote: Remote, era: str) -> None:
    bed.trusted("mcp.md", remote.section())
    client = run(bed, era)
    client.names()
    client.wait_row("far", state="ready", timeout=30)
    assert {"far__shout", "far__who"} <= set(client.names())
    answer = client.use("far__shout", {"text": "hello"})
    assert answer["result"]["content"][0]["text"] == "HELLO"


def test_a_remote_server_that_went_away_is_reached_again(bed: Bed, remote: Remote) -> None:
    bed.trusted("mcp.md", remote.section())
    client = run(bed)
    client.names()
    client.wait_row("far", state="ready", timeout=30)
    first = client.use("far__who")["result"]["content"][0]["text"]
    remote.stop()
    remote.start()
    answers = [client.use("far__shout", {"text": "a"}, timeout=60) for _ in range(2)]
    client.wait_row("far", state="ready", timeout=60)
    assert answers[-1].get("result") or answers[-1]["error"]
    assert client.use("far__who", timeout=60)["result"]["content"][0]["text"] != first


def test_refused_credentials_are_said_without_them(bed: Bed, remote: Remote) -> None:
    bed.trusted("mcp.md", remote.section("wrong-$REMOTE_TOKEN"))
    client = run(bed)
    client.names()
    row = client.wait_row("far", circuit="open", timeout=60)
    assert row["exit_code"] == 4
    assert "401" in row["stderr"]
    assert client.close() == 0
    assert all(TOKEN.encode() not in line for line in client.lines)


class LegacyHandler(BaseHTTPRequestHandler):
    """A server of the handshake era that knows nothing else: without a session it answers in its own words."""

    def do_POST(self) -> None:
        frame = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = frame["method"]
        if method != "initialize" and self.headers.get("mcp-session-id") != "s1":
            self.reply(400, b"Bad Request: no session")
        elif "id" not in frame:
            self.reply(202, b"")
        else:
            results: dict[str, Any] = {
                "initialize": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "legacy", "version": "1"},
                },
                "tools/list": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": "hello"}]},
            }
            answer = {"jsonrpc": "2.0", "id": frame["id"], "result": results[method]}
            self.reply(200, json.dumps(answer).encode(), "application/json")

    def do_GET(self) -> None:
        self.reply(405, b"")

    do_DELETE = do_GET

    def reply(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", "s1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_remote_server_that_knows_only_the_handshake_is_used(bed: Bed, era: Era) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LegacyHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        registry = bed.root / "servers.md"
        registry.write_text(f"## far\nurl: http://127.0.0.1:{server.server_address[1]}/mcp\n")
        bed.environ["PERDURE_REGISTRY"] = str(registry)
        client = bed.run(era=era)
        assert client.use_text("far__greet", timeout=30) == "hello"
    finally:
        server.shutdown()
        server.server_close()
