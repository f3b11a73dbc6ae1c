"""One test's own corner of the machine: a workspace, a home for caches, ledgers, and the hosts started there.

Every client that a `Bed` hands out keeps count of what it asked, and `Bed.close` holds the host to it: a clean
exit, nothing on the pipe but JSON-RPC, one answer per request, and every frame valid in the version spoken.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp_types import methods

from compiled_rules import put_compiled_rules
from harness.store_location import store_of
from perdure.storage.trust import TrustStore
from perdure.testing import fake_server
from perdure.testing.fake_ledger import lines
from perdure.testing.raw_client import HANDSHAKE, MODERN, Object, RawClient, RequestId, envelope

Era = Literal["handshake", "modern"]
ERAS: tuple[Era, ...] = ("handshake", "modern")
# A client in front of a server. Where the eras differ everything is translated; where they are the same little happens.
ERA_PAIRS = pytest.mark.parametrize(
    ("era", "server"),
    [
        pytest.param(
            era,
            server,
            id=f"{era}-client-{server}-server",
            marks=() if era != server else pytest.mark.thorough,
        )
        for era in ERAS
        for server in ERAS
    ],
)
META_VERSION = "io.modelcontextprotocol/protocolVersion"
FULL = {"render": "json", "detail": "full"}

# By its path and without site-packages the fake starts in half the time.
_FAKE = (sys.executable, "-S", fake_server.__file__)


@dataclass(frozen=True)
class Server:
    """A stdio MCP server to put behind a host. Only a fake one keeps the ledgers."""

    name: str
    argv: tuple[str, ...]
    ledgers: Path

    @property
    def mount(self) -> str:
        return f"{self.name}={shlex.join(self.argv)}"

    @property
    def effects(self) -> list[str]:
        """What was really done, without who did it: `effect k1`, `cancelled k2`."""
        return [line.rpartition(" pid=")[0] or line for line in lines(str(self.ledgers / "effects"))]

    @property
    def dispatches(self) -> list[str]:
        """The calls that arrived, each as `tool key`."""
        return lines(str(self.ledgers / "dispatches"))


class Client(RawClient):
    """A raw client of one era that remembers what it asked."""

    era: Era = "handshake"
    version: str = HANDSHAKE
    log_level: str | None = None

    def __init__(self, argv: list[str], env: Mapping[str, str], cwd: Path) -> None:
        self.asked: list[tuple[RequestId, str, bool]] = []
        self.is_checked = True
        self.expected_strays = 0
        self.lines: list[bytes] = []
        super().__init__(argv, env, cwd)

    def send(self, frame: object) -> None:
        if isinstance(frame, dict) and "method" in frame and "id" in frame:
            meta = (frame.get("params") or {}).get("_meta") or {}
            self.asked.append((frame["id"], frame["method"], META_VERSION in meta))
        super().send(frame)

    def initialize(
        self, version: str = HANDSHAKE, capabilities: Mapping[str, Any] | None = None, timeout: float = 10
    ) -> Object:
        result = super().initialize(version, capabilities, timeout)
        self.version = result["protocolVersion"]
        return result

    def _file(self, line: bytes) -> None:
        self.lines.append(line)
        super()._file(line)

    # Either era

    def begin(self, method: str, params: Object | None = None, id: RequestId | None = None) -> RequestId:
        """Send a request of this client's era and return its id."""
        if self.era == "modern":
            params = envelope(params, log_level=self.log_level)
        return self.start(method, params, id)

    def ask(
        self, method: str, params: Object | None = None, id: RequestId | None = None, timeout: float = 10
    ) -> Object:
        """A request of this client's era; the whole response."""
        return self.wait(self.begin(method, params, id), timeout)

    def get(self, method: str, params: Object | None = None, timeout: float = 10) -> Object:
        """A request that must succeed; its result."""
        response = self.ask(method, params, timeout=timeout)
        assert "result" in response, response
        result: Object = response["result"]
        return result

    def begin_use(self, tool: str, arguments: Object | None = None, **members: Any) -> RequestId:
        return self.begin("tools/call", {"name": tool, "arguments": arguments or {}, **members})

    def use(self, tool: str, arguments: Object | None = None, timeout: float = 10, **members: Any) -> Object:
        """A tools/call of this client's era; the whole response. `members` are further params."""
        return self.wait(self.begin_use(tool, arguments, **members), timeout)

    def use_text(self, tool: str, arguments: Object | None = None, timeout: float = 10) -> str:
        response = self.use(tool, arguments, timeout)
        assert "result" in response, response
        return str(response["result"]["content"][0]["text"])

    def use_data(self, tool: str, arguments: Object | None = None, timeout: float = 10) -> Object:
        response = self.use(tool, arguments, timeout)
        assert "result" in response, response
        found: Object = response["result"]["structuredContent"]
        return found

    def names(self, method: str = "tools/list", member: str = "tools", key: str = "name") -> list[str]:
        return [item[key] for item in self.get(method)[member]]

    # The host's own view

    def health(self) -> Object:
        return self.use_data("health", FULL)

    def row(self, mount: str) -> Object:
        rows: list[Object] = self.health()["mounts"]
        return next(row for row in rows if row["name"] == mount)

    def wait_row(self, mount: str, timeout: float = 8, **wanted: Any) -> Object:
        """Ask until the mount is as wanted. Health has no event of its own."""
        until = time.monotonic() + timeout
        while True:
            row = self.row(mount)
            if all(row.get(key) == value for key, value in wanted.items()):
                return row
            if time.monotonic() > until:
                raise AssertionError(f"{mount} never became {wanted}: {row}")
            time.sleep(0.01)

    def kill_mount(self, mount: str) -> int:
        """kill -9 of the process that serves the mount; which one it was, once its successor serves."""
        row = self.wait_row(mount, state="ready")
        os.kill(row["pid"], signal.SIGKILL)
        self.wait_row(mount, state="ready", generation=row["generation"] + 1)
        return int(row["pid"])

    # Holding the host to the protocol

    def check(self) -> None:
        assert self.noise == []
        assert len(self.strays) == self.expected_strays, self.strays
        for identity, answers in self.answers.items():
            times = sum(1 for asked, _, _ in self.asked if _same(asked, identity))
            assert len(answers) <= times, f"{identity!r} was answered more than once: {answers}"
        check_frames(self)


def _same(one: RequestId, other: RequestId) -> bool:
    return type(one) is type(other) and one == other


def check_frames(client: Client) -> None:
    """Every result, notification and request against the official types of the version spoken."""
    for identity, method, is_modern in client.asked:
        version = MODERN if is_modern else client.version
        for answer in client.answers.get(identity, ()):
            if "result" in answer and (method, version) in methods.SERVER_RESULTS:
                methods.validate_server_result(method, version, answer["result"])
            if "error" in answer:
                assert type(answer["error"]["code"]) is int
                assert isinstance(answer["error"]["message"], str)
    spoken = MODERN if client.era == "modern" else client.version
    for frame in client.notifications:
        if not frame["method"].startswith("notifications/x/"):
            methods.parse_server_notification(frame["method"], spoken, frame.get("params"))
    for frame in client.requests:
        methods.parse_server_request(frame["method"], spoken, frame.get("params"))


def trusted(path: Path, text: str, home: Path) -> Path:
    """Write a settings file of a workspace that the user of this `PERDURE_HOME` trusts."""
    store = TrustStore(str(home / "trust"))
    known = str(path.parent.resolve() / path.name)
    store.trust(known, text.encode(), previous=path.read_bytes() if path.exists() else None)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)  # in one step: half a file is another content
    return path


class Bed:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "RW_"))}
        self.environ = {
            **kept,
            "PERDURE_HOME": str(root / "home"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "HOME": str(root),
        }
        self.mount_env: list[str] = []  # variables that every mount gets
        self._clients: list[Client] = []

    @property
    def store(self) -> Path:
        """Of the workspace."""
        return store_of(self.workspace, self.root / "home")

    def settings(self, text: str) -> None:
        """The workspace's settings file, trusted."""
        self.trusted("perdure.toml", text)

    def trusted(self, name: str, text: str) -> Path:
        """A file of the workspace that the user trusts, also while it changes."""
        return trusted(self.workspace / name, text, self.root / "home")

    def fake(self, *options: str, name: str = "fake") -> Server:
        ledgers = self.root / name
        ledgers.mkdir(exist_ok=True)
        kept = [f"--{kind}={ledgers / kind}" for kind in ("effects", "dispatches", "state")]
        return Server(name, (*_FAKE, f"--name={name}", *kept, *options), ledgers)

    def command(self, *servers: Server) -> list[str]:
        words = [word for server in servers for word in ("--mount", server.mount)]
        if self.mount_env:
            names = ",".join(self.mount_env)
            words += [word for server in servers for word in ("--mount-env", f"{server.name}={names}")]
        return [sys.executable, "-P", "-m", "perdure", "run", *words]

    def run(self, *servers: Server, era: Era = "handshake", version: str = HANDSHAKE) -> Client:
        """`perdure run` with the servers mounted, and a client whose session is open."""
        client = self.start(self.command(*servers))
        if era == "modern":
            client.era = era
        else:
            client.initialize(version)
        return client

    def wrap_command(self, server: Server) -> list[str]:
        return [sys.executable, "-P", "-m", "perdure", "wrap", "--name", server.name, "--", *server.argv]

    def start(self, argv: Iterable[str]) -> Client:
        if not self._clients:
            put_compiled_rules(self.root / "home")
        client = Client(list(argv), self.environ, self.workspace)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            if client.process.poll() is None:
                assert client.close() == 0
            if client.is_checked:
                client.check()

    def abandon(self) -> None:
        for client in self._clients:
            if client.process.poll() is None:
                client.kill()
