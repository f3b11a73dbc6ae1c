"""The server card of `perdure serve`, and `perdure registry install URL`, which reads it."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from perdure import __version__
from perdure.protocol.eras import SUPPORTED_VERSIONS
from perdure.testing import fake_server
from perdure.testing.http_client import ServeProcess

NAME = {"type": "string", "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200}
SCHEMA = {
    "type": "object",
    "required": ["$schema", "name", "version", "description"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"},
        "name": NAME,
        "version": {"type": "string", "maxLength": 255},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "remotes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "url"],
                "properties": {
                    "type": {"enum": ["streamable-http", "sse"]},
                    "url": {"type": "string", "pattern": r"^https?://[^\s]+$"},
                    "supportedProtocolVersions": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}


def get(served: ServeProcess, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, "/mcp/server-card", headers=sent)
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def install(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "perdure",
            "registry",
            "--registry",
            str(tmp_path / "mcp.md"),
            "install",
            *words,
        ],
        env={**os.environ, "PERDURE_HOME": str(tmp_path / "reader")},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_card_says_who_and_where_without_a_token_and_to_every_page(tmp_path: Path) -> None:
    served = ServeProcess(tmp_path, "--token", "a-token")
    try:
        status, headers, body = get(served, Origin="https://another.example")
        assert status == 200
        assert headers["content-type"] == "application/mcp-server-card+json"
        assert headers["access-control-allow-origin"] == "*"
        card: dict[str, Any] = json.loads(body)
        jsonschema.validate(card, SCHEMA)
        assert (card["version"], card["title"]) == (__version__, "Perdure")
        (remote,) = card["remotes"]
        assert remote["url"] == f"http://127.0.0.1:{served.port}/mcp"
        assert remote["supportedProtocolVersions"] == list(SUPPORTED_VERSIONS)
        assert b"a-token" not in body
        assert get(served, If_None_Match=headers["etag"])[0] == 304
        assert get(served, "HEAD")[2] == b""
        assert get(served, "OPTIONS", Origin="https://another.example")[0] == 204
        assert get(served, "POST")[0] == 405
        assert get(served, Host="another.example")[0] == 421

        done = install(tmp_path, f"http://127.0.0.1:{served.port}/mcp", "--as", "shared")
        assert done.returncode == 0, done.stderr
        entry = (tmp_path / "mcp.md").read_text()
        assert f"http://127.0.0.1:{served.port}/mcp" in entry
        assert "Authorization=Bearer $PERDURE_TOKEN" in entry
        assert "set PERDURE_TOKEN before it is started" in done.stdout
    finally:
        served.stop()


def test_the_card_of_a_wrapped_server_names_that_server(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, fake_server.__file__])
    served = ServeProcess(tmp_path, "--wrap", command, "--public-url", "https://tools.example/mcp")
    try:
        assert get(served)[0] == 404  # nothing is known of it before its first start
        client = served.client()
        info = client.initialize().last["result"]["serverInfo"]
        client.request("tools/list")
        status, _, body = get(served)
        card = json.loads(body)
        assert status == 200
        jsonschema.validate(card, SCHEMA)
        assert (card["name"], card["version"]) == (f"example.tools/{info['name']}", info["version"])
        assert card["remotes"][0]["url"] == "https://tools.example/mcp"
    finally:
        served.stop()


@pytest.mark.parametrize("path", ["", "/server-card"])
def test_a_server_without_a_card_is_said_so_with_the_other_way_to_install_it(
    tmp_path: Path, path: str
) -> None:
    served = ServeProcess(tmp_path, "--token", "a-token")
    try:
        done = install(tmp_path, f"http://127.0.0.1:{served.port}/elsewhere{path}")
        assert done.returncode == 1
        assert "no server card" in done.stderr
        assert f"perdure registry install NAME --url http://127.0.0.1:{served.port}/elsewhere" in done.stderr
    finally:
        served.stop()
