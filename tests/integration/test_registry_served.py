"""The registry behind `perdure serve`: one process per server for every session, and sessions that follow the file."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_servers import reply, scripted
from perdure.testing import fake_server
from perdure.testing.http_client import HttpClient, ServeProcess
from testbed import trusted

pytestmark = pytest.mark.thorough

JSON = {"render": "json", "detail": "full"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path)
    yield process
    assert process.stop() == 0


def opened(served: ServeProcess) -> HttpClient:
    client = served.client()
    client.initialize()
    return client


def registry(served: ServeProcess, *names: str) -> None:
    words = json.dumps(["-S", fake_server.__file__])
    sections = "".join(
        f"## {name}\ncommand: {sys.executable}\nargs: {words}\nenv: LEVEL=info\n\n" for name in names
    )
    text = f"{sections}## denied\ncommand: bash\n\n## Allowed commands\n{os.path.basename(sys.executable)}\n"
    trusted(served.workspace / "mcp.md", text, served.root / "home")


def tools(client: HttpClient) -> list[str]:
    return [tool["name"] for tool in client.request("tools/list").last["result"]["tools"]]


def wait_for(client: HttpClient, name: str) -> None:
    until = time.monotonic() + 30
    while name not in tools(client):
        assert time.monotonic() < until, f"{name} never came"
        time.sleep(0.05)


def row(client: HttpClient, mount: str) -> dict[str, object]:
    rows = client.call("health", JSON)["structuredContent"]["mounts"]
    found: dict[str, object] = next(row for row in rows if row["name"] == mount)
    return found


def test_a_registry_that_cannot_be_read_keeps_no_session_from_opening_and_is_named(
    served: ServeProcess,
) -> None:
    home = served.root / "home"
    place = trusted(served.workspace / "mcp.json", '{"mcpServers":\n{,}}', home)
    client = opened(served)

    health = client.call("health", JSON)["structuredContent"]

    assert str(place) in health["file_faults"][0]["detail"]
    assert "line 2" in health["file_faults"][0]["detail"]
    odd = '{"mcpServers": {"a\\ud800": {"command": "x"}}, "perdure": {"allowedCommands": ["\\ud800"]}}'
    trusted(place, odd, home)
    until = time.monotonic() + 30
    while "file_faults" in client.call("health", JSON)["structuredContent"]:
        assert time.monotonic() < until
        time.sleep(0.05)
    rows = opened(served).call("health", JSON)["structuredContent"]["mounts"]
    assert "line 1" in next(row for row in rows if row["name"] == "a\\ud800")["last_fault"]["detail"]


def test_every_session_gets_the_registrys_servers_and_shares_their_processes(served: ServeProcess) -> None:
    registry(served, "one")
    first, second = opened(served), opened(served)
    wait_for(first, "one__echo")
    wait_for(second, "one__echo")
    known = [client.call("one__whoami", {})["structuredContent"] for client in (first, second)]
    assert known[0]["pid"] == known[1]["pid"]
    assert "LEVEL" in known[0]["env_names"]
    assert "PERDURE_HOME" not in known[0]["env_names"]
    fault = row(first, "denied")["last_fault"]
    assert isinstance(fault, dict)
    assert fault["code"] == "command_not_allowed"


def test_open_sessions_follow_the_file(served: ServeProcess) -> None:
    registry(served, "one")
    client = opened(served)
    wait_for(client, "one__echo")
    registry(served, "two")
    wait_for(client, "two__echo")
    assert "one__echo" not in tools(client)
    assert not client.call("two__echo", {"text": "x"}).get("isError")
    late = opened(served)
    wait_for(late, "two__echo")


def test_a_server_that_wants_a_sign_in_says_so_to_every_session(served: ServeProcess) -> None:
    with scripted(lambda _: reply(401, {}, www_authenticate="Bearer")) as far:
        text = f"## far\nurl: {far.url}/mcp\n"
        trusted(served.workspace / "mcp.md", text, served.root / "home")
        for client in (opened(served), opened(served)):
            until = time.monotonic() + 30
            while (row(client, "far").get("last_fault") or {}).get("code") != "sign_in_required":
                assert time.monotonic() < until
                time.sleep(0.05)
            assert row(client, "far")["last_fault"]["hint"] == "perdure registry login far"
