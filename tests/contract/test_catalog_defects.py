"""The defects of an existing HTTP registry, each by its number, turned round. The others: `test_registry_defects.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_servers import Asked, reply, scripted
from perdure.registry.backend import open_backend
from perdure.registry.errors import AuthRequired
from perdure.registry.http.backend import HttpCatalog
from perdure.registry.http.client import HttpClient, TornReply

SECRET = "s3cr3t-t0ken-value"
GOOD = {"name": "good", "command": "python", "args": ["x.py"], "env": {"K": "$K"}}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


def servers(*found: object) -> bytes:
    return reply(200, {"servers": list(found)})


def test_h6_a_source_carries_no_password() -> None:
    with scripted(lambda asked: servers(GOOD)) as server:
        refs = HttpCatalog(server.url.replace("//", f"//user:{SECRET}@")).list_servers()
    assert SECRET not in repr(refs)
    assert refs[0].source.endswith("/mcp-servers/good")


def test_h7_a_token_beside_a_password_in_the_url_is_sent() -> None:
    with scripted(lambda asked: servers()) as server:
        HttpCatalog(server.url.replace("//", "//user:pw@"), token=SECRET).list_servers()
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"


def test_m2_a_hidden_name_in_a_list_is_no_entry() -> None:
    with scripted(lambda asked: servers({"name": ".hidden"}, {"name": "a\n"}, GOOD)) as server:
        refs = HttpCatalog(server.url).list_servers()
    assert [ref.name for ref in refs if not ref.error] == ["good"]


@pytest.mark.parametrize("place", ["http://127.0.0.1:1/", "https://catalog.test/?agent_scope=x"])
def test_m6_a_catalog_is_opened_by_its_url_alone(place: str) -> None:
    assert open_backend(place, {}).backend_id == "http"


def test_m7_an_entry_of_a_catalog_is_shown(tmp_path: Path) -> None:
    def answer(asked: Asked) -> bytes:
        return reply(200, GOOD) if asked.parts == ["mcp-servers", "good"] else servers(GOOD)

    with scripted(answer) as server:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", "registry", "--registry", server.url, "show", "good", "--json"],
            capture_output=True,
            text=True,
            env={**os.environ, "K": SECRET},
            check=True,
        )
    shown = json.loads(done.stdout)
    assert (shown["command"], shown["args"], shown["env"]) == ("python", ["x.py"], {"K": "$K"})
    assert SECRET not in done.stdout + done.stderr


def test_m12_false_is_false_and_a_refused_token_is_refused_the_second_time_too() -> None:
    with scripted(lambda asked: reply(200, {"tier": 3, "supports_install": "false"})) as server:
        assert HttpCatalog(server.url).refresh_capabilities().supports_install is False
        server.answer = lambda asked: reply(401, {})
        backend = HttpCatalog(server.url)
        for _ in range(2):
            with pytest.raises(AuthRequired):
                backend.refresh_capabilities()


def test_m13_one_bad_entry_hides_no_other_and_null_is_no_word() -> None:
    bad = [
        {"name": "../x"},
        {"name": "far", "transport": "sse"},
        {**GOOD, "name": "quiet", "description": None},
    ]

    def answer(asked: Asked) -> bytes:
        return servers(*bad, GOOD) if len(asked.parts) == 1 else reply(200, {"name": asked.parts[1]})

    with scripted(answer) as server:
        backend = HttpCatalog(server.url)
        assert [one.name for one in backend.load_all()] == ["good", "quiet"]
        assert {ref.name: ref.description for ref in backend.list_servers()}["quiet"] == ""


def test_m14_a_huge_reply_is_refused_while_it_is_read() -> None:
    pieces: list[int] = []

    def answer(asked: Asked) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 X\r\n\r\n"
        for number in range(4000):
            pieces.append(number)
            yield b" " * 65536

    with scripted(answer) as server, pytest.raises(TornReply):
        HttpCatalog(server.url, client=HttpClient(max_bytes=65536)).list_servers()
    assert len(pieces) < 4000


def test_l5_a_message_says_which_host_it_is_about() -> None:
    with (
        scripted(lambda asked: reply(500, {})) as server,
        pytest.raises(Exception, match=f"127.0.0.1:{server.port}"),
    ):
        HttpCatalog(server.url.replace("//", f"//user:{SECRET}@")).list_servers()
