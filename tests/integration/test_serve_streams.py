"""Streams of `perdure serve` that a client leaves and takes up again, and what it finds there."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import fake_server
from perdure.testing.fake_ledger import lines
from perdure.testing.http_client import Events, HttpClient, ServeProcess


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    ledgers = tmp_path / "ledgers"
    ledgers.mkdir()
    kept = [f"--{kind}={ledgers / kind}" for kind in ("effects", "dispatches", "state")]
    command = shlex.join((sys.executable, "-S", fake_server.__file__, *kept))
    process = ServeProcess(tmp_path, "--mount", f"s={command}")
    yield process
    assert process.stop() == 0


@pytest.fixture
def client(served: ServeProcess) -> HttpClient:
    made = served.client()
    made.initialize()
    return made


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": f"s__{tool}", "arguments": arguments}


def frames(events: Events) -> list[Any]:
    """The rest of a stream."""
    return [json.loads(event["data"]) for event in events if event.get("data")]


@pytest.mark.thorough
def test_a_call_that_takes_long_becomes_a_stream_with_a_place_to_come_back_to(client: HttpClient) -> None:
    events = client.begin("tools/call", call("slow", ms=1500, key="k"))
    first = next(events)
    assert first["data"] == ""
    assert first["id"]
    assert int(first["retry"]) > 0
    (answer,) = frames(events)
    assert "result" in answer


@pytest.mark.thorough
@pytest.mark.parametrize("tool", ["slow", "read_effect"])
def test_who_leaves_a_stream_gets_the_answer_when_he_comes_back(
    served: ServeProcess, client: HttpClient, tool: str
) -> None:
    wait = {"ms": 2000} if tool == "slow" else {"linger_ms": 2000}
    events = client.begin("tools/call", call(tool, key="k", **wait), identity="a.b-c")
    next(events)
    events.leave()
    (answer,) = frames(client.begin("GET", last=events.last))
    assert answer["id"] == "a.b-c"
    assert "result" in answer
    assert len(lines(str(served.root / "ledgers" / "dispatches"))) == 1


@pytest.mark.thorough
def test_what_was_said_meanwhile_is_said_once_more_from_where_he_left(client: HttpClient) -> None:
    params = {**call("progress", n=6, delay_ms=300), "_meta": {"progressToken": "t"}}
    events = client.begin("tools/call", params)
    seen = [json.loads(event["data"]) for event in (next(events) for _ in range(3)) if event["data"]]
    events.leave()
    seen += frames(client.begin("GET", last=events.last))
    steps = [frame["params"]["progress"] for frame in seen if "method" in frame]
    assert steps == [1, 2, 3, 4, 5, 6]
    assert "result" in seen[-1]


@pytest.mark.thorough
def test_a_stream_that_ended_is_still_told_from_any_event_on(client: HttpClient) -> None:
    params = {**call("progress", n=2, delay_ms=600), "_meta": {"progressToken": "t"}}
    events = client.begin("tools/call", params)
    ids = [event["id"] for event in events]
    for index, last in enumerate(ids):
        again = client.begin("GET", last=last)
        assert [event["id"] for event in again if event.get("data")] == ids[index + 1 :]


@pytest.mark.thorough
def test_one_stream_has_one_reader(client: HttpClient) -> None:
    events = client.begin("tools/call", call("slow", ms=3000, key="k"))
    next(events)
    other = client.begin("GET", last=events.last)
    assert frames(events) == []
    (answer,) = frames(other)
    assert "result" in answer


@pytest.mark.thorough
def test_after_a_restart_the_stream_ends_with_what_became_of_the_call(
    served: ServeProcess, client: HttpClient
) -> None:
    events = client.begin("tools/call", call("slow", ms=60_000, key="k"), identity=77)
    next(events)
    served.restart()
    (answer,) = frames(client.begin("GET", last=events.last))
    assert answer["id"] == 77
    assert answer["error"]["data"]["outcome"] == "unknown"
    assert client.request("ping").last["result"] == {}


@pytest.mark.thorough
def test_a_change_that_was_said_to_nobody_waits_for_the_standing_stream(client: HttpClient) -> None:
    assert "s__echo" in {tool["name"] for tool in client.request("tools/list").last["result"]["tools"]}
    standing = client.begin("GET")
    next(standing)
    client.call("s__change_catalog", {"add": "one"})
    assert json.loads(next(standing)["data"])["method"] == "notifications/tools/list_changed"
    before, _, number = standing.last.rpartition(".")
    standing.leave()
    client.call("s__change_catalog", {"add": "two"})
    again = client.begin("GET", last=f"{before}.{int(number) - 1}")
    heard = [
        json.loads(event["data"])["method"] for event in (next(again) for _ in range(3)) if event["data"]
    ]
    assert heard == ["notifications/tools/list_changed"] * 2
    again.leave()


@pytest.mark.parametrize("last", ["nothing", "312d61626364.0", "x.y", "zz-1.5", ".1", "standing"])
def test_an_event_that_nobody_knows_is_refused_and_the_session_lives(client: HttpClient, last: str) -> None:
    assert client.begin("GET", last=last).status == 400
    assert client.request("ping").last["result"] == {}


@pytest.mark.thorough
def test_an_older_client_gets_no_event_without_data(served: ServeProcess) -> None:
    client = served.client()
    opened = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "o", "version": "1"},
    }
    client.session = client.request("initialize", opened).headers["mcp-session-id"]
    params = {**call("progress", n=2, delay_ms=400), "_meta": {"progressToken": "t"}}
    events = [event for event in client.begin("tools/call", params) if "data" in event]
    assert all(event["data"] for event in events)
