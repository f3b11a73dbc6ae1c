"""A catalog as the registry of a running host: mounted from its copy, followed, and survived."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from catalog_servers import Asked, Scripted, reply, scripted
from testbed import Bed, Server

pytestmark = pytest.mark.thorough

TOKEN = "t0ken-0123456789"


def spec(server: Server, **more: Any) -> dict[str, Any]:
    command, *args = server.argv
    return {"name": server.name, "transport": "stdio", "command": command, "args": args, "env": {}, **more}


def serve(bed: Bed, server: Scripted) -> None:
    bed.environ |= {
        "PERDURE_REGISTRY": server.url.replace("//", f"//user:{TOKEN}@") + "/?agent_scope=team",
        "PERDURE_REGISTRY_TOKEN": TOKEN,
    }


def catalog(found: list[dict[str, Any]]) -> Any:
    def answer(asked: Asked) -> bytes:
        match asked.parts:
            case ["mcp-servers"]:
                return reply(200, {"servers": found})
            case ["mcp-servers", name]:
                return next((reply(200, one) for one in found if one["name"] == name), reply(404, {}))
        return reply(404, {})

    return answer


def test_the_servers_of_a_catalog_are_mounted_and_go_on_without_it(bed: Bed) -> None:
    found = [spec(bed.fake(name="one")), spec(bed.fake(name="off"), enabled=False)]
    with scripted(catalog(found)) as server:
        serve(bed, server)
        names = bed.run().names()
        assert "one__echo" in names
        assert not [name for name in names if name.startswith("off__")]
        assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
        assert server.asked[0].query["agent_scope"] == "team"
    again = bed.run()  # the catalog is gone
    assert again.use_text("one__echo", {"text": "still"}) == "still"


def test_the_copy_holds_no_credentials_and_is_its_owners_alone(bed: Bed) -> None:
    with scripted(catalog([spec(bed.fake(name="one"))])) as server:
        serve(bed, server)
        bed.run().names()
    home = bed.environ["PERDURE_HOME"]
    from pathlib import Path

    copies = list(Path(home).glob("cache/registry-*.json"))
    assert len(copies) == 1
    assert list(json.loads(copies[0].read_text())["mcpServers"]) == ["one"]
    assert copies[0].stat().st_mode & 0o077 == 0
    assert not [
        path for path in Path(home).rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()
    ]


def test_a_catalog_that_is_not_there_leaves_the_host_with_its_own_tools(bed: Bed) -> None:
    bed.environ["PERDURE_REGISTRY"] = "http://127.0.0.1:1/"
    assert "safe_write" in bed.run().names()


def eventually(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def tagged(found: list[dict[str, Any]]) -> Any:
    """A catalog that knows what its readers have already."""

    def answer(asked: Asked) -> bytes:
        if asked.parts != ["mcp-servers"]:
            return reply(404, {})
        tag = f'"{len(found)}"'
        if asked.headers.get("if-none-match") == tag:
            return reply(304, b"", etag=tag)
        return reply(200, {"servers": found}, etag=tag)

    return answer


def test_a_catalog_that_changes_is_followed_by_a_running_host_and_outlived(bed: Bed) -> None:
    bed.environ["PERDURE_REGISTRY_POLL"] = "0.2"
    found = [spec(bed.fake(name="one"))]
    with scripted(tagged(found)) as server:
        serve(bed, server)
        client = bed.run()
        assert "one__echo" in client.names()
        one = client.row("one")["pid"]
        found.append(spec(bed.fake(name="two")))
        eventually(lambda: "two__echo" in client.names())
        assert client.use_text("two__echo", {"text": "new"}) == "new"
        assert client.row("one")["pid"] == one  # what did not change is left alone
        before = len(server.asked)
        eventually(lambda: len(server.asked) > before + 4)
        later = server.asked[before + 2 :]
        assert all("if-none-match" in asked.headers for asked in later)
        del found[0]
        eventually(lambda: "one__echo" not in client.names())
    assert client.use_text("two__echo", {"text": "still"}) == "still"


def test_a_catalog_that_answers_with_errors_takes_nothing_away(bed: Bed) -> None:
    bed.environ["PERDURE_REGISTRY_POLL"] = "0.2"
    fails: list[bool] = []
    found = [spec(bed.fake(name="one"))]
    whole = tagged(found)

    def answer(asked: Asked) -> bytes:
        return reply(503, {}) if fails else whole(asked)

    with scripted(answer) as server:
        serve(bed, server)
        client = bed.run()
        assert "one__echo" in client.names()
        fails.append(True)
        found.clear()
        before = len(server.asked)
        eventually(lambda: len(server.asked) > before + 2)
        assert client.use_text("one__echo", {"text": "still"}) == "still"
        fails.clear()
        eventually(lambda: "one__echo" not in client.names())
