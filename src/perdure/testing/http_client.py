"""A raw client over HTTP, and a server to speak to: real sockets, no MCP library in between."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

MODERN = "2026-07-28"
ACCEPT = "application/json, text/event-stream"
_PREFIX = "io.modelcontextprotocol/"
_START_S = 60.0


def envelope(name: str = "modern", capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        f"{_PREFIX}protocolVersion": MODERN,
        f"{_PREFIX}clientCapabilities": capabilities or {},
        f"{_PREFIX}clientInfo": {"name": name, "version": "1"},
    }


class ServeProcess:
    """`perdure serve` on a port of its own, started again where it is told to."""

    def __init__(
        self,
        root: Path,
        *options: str,
        env: Mapping[str, str] | None = None,
        workspace: str = "workspace",
    ) -> None:
        self.root = root
        self.workspace = root / workspace
        self.workspace.mkdir(exist_ok=True)
        self.port = free_port()
        self._options = options
        self._env = {**os.environ, "PERDURE_HOME": str(root / "home"), **(env or {})}
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "perdure", "serve", "--port", str(self.port)]
        command += ["--workspace", str(self.workspace), *self._options]
        process = subprocess.Popen(command, env=self._env, stderr=subprocess.PIPE)
        assert process.stderr is not None
        alarm = threading.Timer(_START_S, process.kill)  # its end closes the pipe
        alarm.start()
        try:
            line = process.stderr.readline()
            assert b"/mcp" in line, line + process.stderr.read()
        finally:
            alarm.cancel()
        return process

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close_stderr()

    def restart(self) -> None:
        self.kill()
        self.process = self._started()

    def stop(self) -> int:
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self._close_stderr()
        return code

    def _close_stderr(self) -> None:
        if self.process.stderr is not None:
            self.process.stderr.close()

    def client(self, **headers: str) -> HttpClient:
        return HttpClient(self.port, headers)


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def frames(self) -> list[Any]:
        """What was said, as one body or as events."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [msgspec.json.decode(self.body)] if self.body else []
        events = self.body.decode().split("\n\n")
        lines = [line for event in events for line in event.splitlines() if line.startswith("data: ")]
        return [msgspec.json.decode(line[6:]) for line in lines if line[6:]]

    @property
    def last(self) -> Any:
        return self.frames[-1]


class Events:
    """A stream of events, read one by one, that can be left at any moment."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._answer = connection.getresponse()
        self.status = self._answer.status
        self.last = ""

    def __next__(self) -> dict[str, str]:
        """The fields of the next event."""
        fields: dict[str, str] = {}
        for line in self._answer:
            key, _, value = line.decode().rstrip("\n").partition(":")
            if key:
                fields[key] = value.removeprefix(" ")
            elif line == b"\n" and fields:
                self.last = fields.get("id", self.last)
                return fields
        raise StopIteration

    def __iter__(self) -> Iterator[dict[str, str]]:
        return self

    def leave(self) -> None:
        self._answer.close()
        self._connection.close()


class HttpClient:
    """One client in either era. Each request has a connection of its own, as many clients have it."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.name = "raw"
        self.capabilities: dict[str, Any] = {}
        self.session: str | None = None
        self._headers = {"Accept": ACCEPT, "Content-Type": "application/json", **(headers or {})}
        self._last = 0

    def send(
        self, method: str, body: bytes = b"", headers: Mapping[str, str] | None = None, seconds: float = 60
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            found = {**self._headers, **(headers or {})}
            if self.session is not None:
                found.setdefault("Mcp-Session-Id", self.session)
            connection.request(method, "/mcp", body or None, found)
            answer = connection.getresponse()
            return Answer(
                answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def post(self, message: Any, **headers: str) -> Answer:
        return self.send("POST", msgspec.json.encode(message), headers)

    def next_id(self) -> int:
        self._last += 1
        return self._last

    # --- the handshake era -----------------------------------------------------------------------------------

    def initialize(self, capabilities: dict[str, Any] | None = None) -> Answer:
        answer = self.request(
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities or {},
                "clientInfo": {"name": self.name, "version": "1"},
            },
        )
        self.session = answer.headers.get("mcp-session-id")
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def request(self, method: str, params: dict[str, Any] | None = None, identity: Any = None) -> Answer:
        message = {"jsonrpc": "2.0", "id": self.next_id() if identity is None else identity, "method": method}
        return self.post({**message, "params": params or {}})

    def call(self, tool: str, arguments: dict[str, Any], identity: Any = None) -> Any:
        """The result of a tool, or the error that came instead."""
        last = self.request("tools/call", {"name": tool, "arguments": arguments}, identity).last
        return last.get("result", last.get("error"))

    def stream(self) -> Iterator[Any]:
        """The client's standing stream: what is said on it, as it comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/mcp", headers={**self._headers, "Mcp-Session-Id": self.session or ""})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        for line in answer:
            if line.startswith(b"data: "):
                yield msgspec.json.decode(line[6:])

    def begin(
        self, method: str, params: dict[str, Any] | None = None, identity: Any = None, last: str | None = None
    ) -> Events:
        """A stream as it comes: of a request, or with `last` of what came after that event."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {**self._headers, "Mcp-Session-Id": self.session or ""}
        if last is not None:
            connection.request("GET", "/mcp", headers={**headers, "Last-Event-ID": last})
        elif method == "GET":
            connection.request("GET", "/mcp", headers=headers)
        else:
            number = self.next_id() if identity is None else identity
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
            connection.request("POST", "/mcp", msgspec.json.encode(message), headers)
        return Events(connection)

    # --- 2026 ------------------------------------------------------------------------------------------------

    def modern(
        self, method: str, params: dict[str, Any] | None = None, identity: Any = None, **headers: str
    ) -> Answer:
        given = {**(params or {}), "_meta": envelope(self.name, self.capabilities)}
        routing = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        named = given.get("name") or given.get("uri") or given.get("taskId")
        if named is not None:
            routing["Mcp-Name"] = str(named)
        message = {"jsonrpc": "2.0", "id": self.next_id() if identity is None else identity, "method": method}
        return self.post({**message, "params": given}, **{**routing, **headers})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
