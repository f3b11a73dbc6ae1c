"""`perdure registry serve`, a real process: what it serves, to whom, and what it does not put up with."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.registry.catalog.official_api import OfficialApi
from perdure.registry.catalog.records import read_record
from perdure.registry.entry import Entry
from perdure.registry.errors import AlreadyInstalled, AuthRequired, Unsupported
from perdure.registry.http.address import read_address
from perdure.registry.http.backend import HttpCatalog
from perdure.registry.http.client import HttpClient, Reply
from perdure.registry.packages.choice import choose
from perdure.registry.packages.launch_plan import make_entry
from perdure.registry.server.http_server import CONNECTIONS
from perdure.registry.templates import Template

pytestmark = pytest.mark.thorough

TOKEN = "t0ken-0123456789"
SECRETS = (
    "literal-secret-one",
    "sk-abcdef0123456789abcdef",
    "pw-in-url-77",
    "query-88-value",
    "head-99-secret",
)
REGISTRY = f"""# MCP servers

## weather
description: Forecasts and alerts
command: npx
args: ["-y", "@acme/weather@1.2.3", "--token={SECRETS[1]}", "--city", "Oslo"]
env: API_KEY={SECRETS[0]}, LEVEL=${{LEVEL:-info}}, OTHER=$OTHER
unknown: {SECRETS[0]}

## far
transport: streamable-http
url: https://user:{SECRETS[2]}@host.test/mcp?key={SECRETS[3]}
headers: X-Key={SECRETS[4]}
headers: Authorization=Bearer $FAR_TOKEN

## tables
command: uvx
args: ["acme-tables==0.4.0", "serve"]

## local
command: python
args: ["server.py"]

## broken
args: x
"""


class Served:
    """A running catalog and its file."""

    def __init__(self, path: Path, *words: str, token: str = TOKEN) -> None:
        self.path = path
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "perdure.cli.main",
                "registry",
                "--registry",
                str(path),
                "serve",
                "--port",
                "0",
                *words,
            ],
            env={name: value for name, value in os.environ.items() if not name.startswith("PERDURE")}
            | {"PERDURE_HOME": str(path.parent / "home")}
            | ({"PERDURE_TOKEN": token} if token else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split(" at ")[1].split()[0]
        self.port = int(re.findall(r":(\d+)/", self.url)[0])

    def get(self, path: str, token: str = "") -> Reply:
        where = read_address(self.url + path)
        return HttpClient(token=token).get(where)

    def json(self, path: str) -> Any:
        reply = self.get(path)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)

    def raw(self, data: bytes, wait: float = 15) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as connection:
            connection.sendall(data)
            found = b""
            while piece := connection.recv(65536):
                found += piece
        return found

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        named = {"host": f"127.0.0.1:{self.port}", "content-length": str(len(body)), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
        found = self.raw(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        return int(found.split()[1]), found.partition(b"\r\n\r\n")[2]

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(15) == 0


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "reader"))
    path = tmp_path / "mcp.md"
    path.write_text(REGISTRY)
    found = Served(path)
    try:
        yield found
    finally:
        found.close()


# --- what is served -----------------------------------------------------------------------------------------------


def test_the_tiered_catalog_is_served(served: Served) -> None:
    assert served.json("capabilities")["tier"] == 3
    listed = served.json("mcp-servers")["servers"]
    assert [one["name"] for one in listed] == ["broken", "far", "local", "tables", "weather"]
    assert listed[0]["error"]
    assert [one["name"] for one in served.json("mcp-servers?expand=spec")["servers"]] == [
        *("far", "local", "tables", "weather")
    ]
    assert served.json("mcp-servers/weather/validate")["ok"] is True
    assert served.json("mcp-servers/absent/validate")["ok"] is False
    assert served.get("mcp-servers/absent").status == 404


def test_no_secret_of_the_file_is_served_anywhere(served: Served) -> None:
    places = ["capabilities", "mcp-servers", "mcp-servers?expand=spec", "v0.1/servers", "v0/servers"]
    for name in ("weather", "far", "broken"):
        places += [
            f"mcp-servers/{name}",
            f"mcp-servers/{name}/validate",
            f"v0.1/servers/local%2F{name}/versions/latest",
        ]
    for place in places:
        reply = served.get(place)
        text = reply.body.decode() + str(reply.headers)
        assert not [one for one in SECRETS if one in text], place
        assert str(served.path.parent) not in text
    spec = served.json("mcp-servers/weather")
    assert spec["env"] == {"API_KEY": "$API_KEY", "LEVEL": "${LEVEL:-info}", "OTHER": "$OTHER"}


def test_the_official_read_api_is_served_in_both_versions(served: Served) -> None:
    for prefix in ("v0.1", "v0"):
        page = served.json(f"{prefix}/servers")
        assert page["metadata"]["count"] == 4
        for one in page["servers"]:
            server = one["server"]
            assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
            assert 1 <= len(server["description"]) <= 100
            assert server["version"]
    assert served.get("v0.1/servers?limit=0").status == 422
    assert served.get("v0.1/servers/local%2Fabsent/versions/latest").status == 404


TEXT = {"type": "string", "minLength": 1}
INPUT = {
    "isRequired": {"type": "boolean"},
    "isSecret": {"type": "boolean"},
    "default": TEXT,
    "value": TEXT,
    "variables": {"type": "object"},
}
SERVER_JSON = {
    "type": "object",
    "required": ["name", "description", "version"],
    "additionalProperties": False,
    "properties": {
        "$schema": TEXT,
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "maxLength": 200},
        "title": {"type": "string", "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "minLength": 1, "maxLength": 255, "not": {"const": "latest"}},
        "_meta": {"type": "object"},
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["registryType", "identifier", "transport"],
                "additionalProperties": False,
                "properties": {
                    "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
                    "identifier": TEXT,
                    "version": {"type": "string", "pattern": "[0-9]"},
                    "transport": {"const": {"type": "stdio"}},
                    "runtimeArguments": {"$ref": "#/$defs/arguments"},
                    "packageArguments": {"$ref": "#/$defs/arguments"},
                    "environmentVariables": {"$ref": "#/$defs/named"},
                },
            },
        },
        "remotes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "url"],
                "additionalProperties": False,
                "properties": {
                    "type": {"enum": ["streamable-http", "sse"]},
                    "url": {"type": "string", "pattern": "^https?://[^ ]+$"},
                    "headers": {"$ref": "#/$defs/named"},
                    "variables": {"type": "object"},
                },
            },
        },
    },
    "$defs": {
        "arguments": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "value"],
                "additionalProperties": False,
                "properties": {"type": {"const": "positional"}, **INPUT},
            },
        },
        "named": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "additionalProperties": False,
                "properties": {"name": TEXT, **INPUT},
            },
        },
    },
}


def test_what_is_served_officially_is_written_strictly(served: Served) -> None:
    import jsonschema

    found = served.json("v0.1/servers")["servers"]
    for one in found:
        jsonschema.validate(one["server"], SERVER_JSON)
        assert one["_meta"]["io.modelcontextprotocol.registry/official"]["isLatest"] is True
    assert {next(iter(one["server"].keys() & {"packages", "remotes", "_meta"})) for one in found} == {
        *("packages", "remotes", "_meta")
    }


def test_what_is_served_officially_can_be_installed_again(served: Served) -> None:
    api = OfficialApi(HttpClient(), read_address(served.url))
    records = [read_record(one) for one in api.page().records]
    by_name = {one.name: one for one in records}
    weather = make_entry(choose(by_name["local/weather"], lambda _: True), "weather", {}, "")
    assert weather.command == Template("npx")
    assert [arg.text for arg in weather.args][:2] == ["-y", "@acme/weather@1.2.3"]
    assert weather.env["LEVEL"] == Template("${LEVEL:-info}")
    far = make_entry(choose(by_name["local/far"], lambda _: True), "far", {}, "")
    assert far.headers["Authorization"] == Template("Bearer $FAR_TOKEN")
    tables = make_entry(choose(by_name["local/tables"], lambda _: True), "tables", {}, "")
    assert [arg.text for arg in tables.args] == ["acme-tables==0.4.0", "serve"]


def test_pages_follow_one_another(served: Served) -> None:
    found: list[str] = []
    cursor = ""
    while True:
        page = served.json(f"v0.1/servers?limit=1{cursor}")
        found += [one["server"]["name"] for one in page["servers"]]
        if not page["metadata"].get("nextCursor"):
            break
        cursor = f"&cursor={page['metadata']['nextCursor'].replace('/', '%2F')}"
    assert found == ["local/far", "local/local", "local/tables", "local/weather"]


def test_an_unchanged_answer_is_not_sent_twice(served: Served) -> None:
    etag = served.get("mcp-servers").headers["etag"]
    again = HttpClient().get(read_address(f"{served.url}mcp-servers"), {"if-none-match": etag})
    assert (again.status, again.body) == (304, b"")
    served.path.write_text("## other\ncommand: python\n")
    again = HttpClient().get(read_address(f"{served.url}mcp-servers"), {"if-none-match": etag})
    assert [one["name"] for one in json.loads(again.body)["servers"]] == ["other"]


# --- who may write -------------------------------------------------------------------------------------------------


def test_whoever_writes_shows_the_token(served: Served) -> None:
    one = Entry(name="new", command=Template("python"))
    for token in ("", "wrong"):
        with pytest.raises(AuthRequired):
            HttpCatalog(served.url, token=token).install(one)
        with pytest.raises(AuthRequired):
            HttpCatalog(served.url, token=token).uninstall("weather")
    assert served.path.read_text() == REGISTRY
    HttpCatalog(served.url, token=TOKEN).install(one)
    with pytest.raises(AlreadyInstalled):
        HttpCatalog(served.url, token=TOKEN).install(one)
    assert "## new" in served.path.read_text()


def test_of_many_who_install_one_wins(served: Served) -> None:
    outcomes: list[str] = []

    def install() -> None:
        try:
            HttpCatalog(served.url, token=TOKEN).install(Entry(name="one", command=Template("python")))
            outcomes.append("won")
        except AlreadyInstalled:
            outcomes.append("lost")

    threads = [threading.Thread(target=install) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 11 + ["won"]


def test_a_switch_from_outside_leaves_the_values_in_the_file_alone(served: Served) -> None:
    backend = HttpCatalog(served.url, token=TOKEN)
    backend.set_enabled("weather", False)
    backend.set_enabled("far", False)
    text = served.path.read_text()
    assert all(one in text for one in SECRETS)
    backend.replace(backend.load("weather"))
    assert all(one in served.path.read_text() for one in SECRETS)
    assert served.json("mcp-servers/weather")["enabled"] is False


def test_without_a_token_nobody_writes(tmp_path: Path) -> None:
    path = tmp_path / "mcp.md"
    path.write_text(REGISTRY)
    found = Served(path, token="")
    try:
        assert found.json("capabilities")["supports_install"] is False
        with pytest.raises(Unsupported):
            HttpCatalog(found.url, token="any").install(Entry(name="a", command=Template("x")))
        assert found.ask("POST", "/mcp-servers", b"{}", authorization="Bearer any")[0] == 405
    finally:
        found.close()


def test_the_lowest_tier_reads_as_the_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "reader"))
    path = tmp_path / "mcp.md"
    path.write_text(REGISTRY)
    found = Served(path, "--tier", "1")
    try:
        assert found.get("capabilities").status == 404
        backend = HttpCatalog(found.url, token=TOKEN)
        assert not backend.refresh_capabilities().supports_install
        refs = backend.list_servers()
        assert [ref.name for ref in refs if not ref.error] == ["far", "local", "tables", "weather"]
        assert backend.load_all() == [backend.load(ref.name) for ref in refs if not ref.error]
        assert backend.validate("weather").ok
        assert not backend.validate("broken").ok
        with pytest.raises(Unsupported):
            backend.uninstall("weather")
    finally:
        found.close()
    assert path.read_text() == REGISTRY


def test_beyond_this_machine_a_token_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure.cli.main", "registry", "serve", "--host", "0.0.0.0", "--port", "0"],
        env={name: value for name, value in os.environ.items() if not name.startswith("PERDURE")},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert "--token" in done.stderr


def test_beyond_this_machine_readers_show_the_token_too(tmp_path: Path) -> None:
    path = tmp_path / "mcp.md"
    path.write_text(REGISTRY)
    found = Served(path, "--host", "0.0.0.0")
    try:
        assert found.ask("GET", "/mcp-servers")[0] == 401
        assert found.ask("GET", "/v0.1/servers")[0] == 401
        assert found.ask("GET", "/mcp-servers", authorization=f"Bearer {TOKEN}")[0] == 200
    finally:
        found.close()


# --- what it does not put up with -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.test", "127.0.0.1.evil.test", "", "evil.test:80", "localhost@evil.test"]
)
def test_a_page_that_reaches_us_under_its_own_name_gets_nothing(served: Served, host: str) -> None:
    assert served.ask("GET", "/mcp-servers", host=host)[0] == 421


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /mcp-servers HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET /mcp-servers HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"POST /mcp-servers HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST /mcp-servers HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST /mcp-servers HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n", 413),
        (b"GET http://evil.test/ HTTP/1.1\r\nhost: localhost\r\n\r\n", 400),
        (b"GET /\r\n HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_not_a_request_is_refused_and_the_server_lives(
    served: Served, data: bytes, status: int
) -> None:
    found = served.raw(data.replace(b"host: localhost", f"host: localhost:{served.port}".encode()))
    assert int(found.split()[1]) == status
    assert served.json("mcp-servers")


def test_a_huge_body_is_told_so_while_it_is_sent(served: Served) -> None:
    assert served.ask("POST", "/mcp-servers", b" " * 3_000_000, authorization=f"Bearer {TOKEN}")[0] == 413


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[]", b"7", b"\xff", b'{"name": "a/../b", "command": "x"}', b'{"name": "a"}'),
        *(
            b'{"name": "a", "command": "x", "args": ["b\\n## evil"]}',
            b'{"name": "a\\r\\nx: y", "command": "x"}',
        ),
        *(b'{"name": "a", "command": "x", "env": {"K": "literal"}}', b"[" * 50_000),
    ],
)
def test_a_bad_entry_is_refused_and_the_file_stays(served: Served, body: bytes) -> None:
    status, said = served.ask(
        "POST", "/mcp-servers", body, authorization=f"Bearer {TOKEN}", content_type="application/json"
    )
    assert status in (400, 422)
    assert b"literal" not in said
    assert served.path.read_text() == REGISTRY


def test_those_who_send_slowly_hold_nobody_up(served: Served) -> None:
    slow = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
    try:
        for one in slow:
            one.sendall(b"GET /mcp-servers HTTP/1.1\r\n")
        assert served.json("mcp-servers")
        slow[0].settimeout(30)
        assert b" 408 " in slow[0].recv(4096)
    finally:
        for one in slow:
            one.close()


def test_connections_that_are_left_open_count_until_they_are_closed(served: Served) -> None:
    request = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\n\r\n".encode()

    def answered() -> socket.socket:
        """A connection whose answer was read and which is kept open."""
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=15)
        connection.sendall(request)
        while connection.recv(65536):
            pass
        return connection

    connections = [answered() for _ in range(CONNECTIONS)]
    refused = served.raw(b"")
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"too many connections" in refused
    connections.pop().close()
    is_served = False
    while not is_served:  # until the server has seen the end of that one
        with contextlib.suppress(ConnectionError):  # one too many is closed without being read
            is_served = served.raw(request).startswith(b"HTTP/1.1 200 ")
    for connection in connections:
        connection.close()


def test_no_bytes_bring_it_down(served: Served) -> None:
    chance = random.Random(11)
    head = f"POST /mcp-servers?agent_scope=x HTTP/1.1\r\nhost: localhost:{served.port}\r\n".encode()
    head += f"authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 30\r\n\r\n".encode()
    whole = bytearray(head + b'{"name": "a", "command": "x"}  ')
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", served.port), timeout=15) as connection:
            connection.sendall(bytes(data[: chance.randrange(1, len(data) + 1)]))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert served.json("mcp-servers")
    assert served.process.poll() is None


def test_a_port_that_is_taken_is_told(served: Served) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure.cli.main", "registry", "serve", "--port", str(served.port)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 4
    assert str(served.port) in done.stderr


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    path = tmp_path / "mcp.md"
    path.write_text(REGISTRY)
    found = Served(path)
    found.close()
    assert found.process.returncode == 0
