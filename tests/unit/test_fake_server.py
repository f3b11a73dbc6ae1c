"""The fake server does what its tests will rely on: both eras, the ledgers, every fault it promises."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    TextContent,
)

from perdure.testing import fake_catalog, fake_faults, fake_server
from perdure.testing.raw_client import MODERN, ClientError, Ended, RawClient, envelope

COMMAND = [sys.executable, "-m", "perdure.testing.fake_server"]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

Start = Callable[..., RawClient]


@pytest.fixture
def start() -> Iterator[Start]:
    clients: list[RawClient] = []

    def begin(*options: object) -> RawClient:
        clients.append(RawClient([*COMMAND, *map(str, options)]))
        return clients[-1]

    yield begin
    for client in clients:
        client.kill()


@pytest.fixture
def handshake(start: Start) -> Start:
    def begin(*options: object) -> RawClient:
        client = start("--era", "handshake", *options)
        client.initialize()
        return client

    return begin


def text(response: dict[str, Any]) -> str:
    found = response["result"]["content"][0]["text"]
    assert isinstance(found, str)
    return found


def structured(response: dict[str, Any]) -> dict[str, Any]:
    found = response["result"]["structuredContent"]
    assert isinstance(found, dict)
    return found


def ledger(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def eventually(condition: Callable[[], bool], timeout: float = 5) -> bool:
    """For files and processes, which send no event."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# The process


def test_it_needs_nothing_but_the_standard_library() -> None:
    script = (
        "import sys, perdure.testing.fake_server, perdure.testing.raw_client\n"
        "heavy = {'msgspec', 'mcp', 'pydantic', 'anyio', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_it_runs_by_its_path_without_the_package_installed() -> None:
    with RawClient([sys.executable, "-I", "-S", fake_server.__file__], cwd="/") as client:
        client.initialize()
        assert text(client.call("echo", {"text": "hi"})) == "hi"
        assert client.close() == 0


def test_every_listed_tool_has_a_behaviour() -> None:
    listed = {tool["name"] for tool in fake_catalog.BUILT_IN} | {"cwd"}
    assert listed == set(fake_server._TOOLS)


def test_it_crashes_at_start_as_often_as_it_is_told(start: Start, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert [start("--crash-at-start", 2, "--state", state).wait_end() for _ in range(2)] == [3, 3]
    start("--crash-at-start", 2, "--state", state).initialize()
    assert ledger(state) == ["start", "start"]


def test_it_hangs_where_it_is_told_and_a_successor_need_not(start: Start, tmp_path: Path) -> None:
    options = ("--hang-at", "initialize", "--hang-times", 1, "--state", tmp_path / "state")
    with pytest.raises(TimeoutError):
        start(*options).initialize(timeout=0.3)
    start(*options).initialize()
    stuck = start("--hang-at", "start")
    stuck.start("ping")
    with pytest.raises(TimeoutError):
        stuck.wait(1, timeout=0.3)


def test_a_stubborn_server_ignores_sigterm_and_the_end_of_input(start: Start) -> None:
    client = start("--stubborn")
    client.initialize()
    client.close_stdin()
    client.process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        client.wait_end(timeout=0.3)


def test_noise_surrounds_the_answers_and_hides_none(handshake: Start) -> None:
    client = handshake("--noise")
    assert text(client.call("echo", {"text": "hi"})) == "hi"
    assert client.noise[0] == b"fake server starting\n"
    assert b"noise before\n" in client.noise


# Eras


def test_the_handshake_era_refuses_discover_envelopes_and_early_requests(start: Start) -> None:
    client = start("--era", "handshake")
    assert client.modern("server/discover")["error"]["code"] == -32601
    assert client.request("tools/list")["error"]["code"] == -32602
    assert client.request("ping")["result"] == {}
    assert client.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
    assert client.modern("tools/list")["error"]["code"] == -32600
    assert "resultType" not in client.request("tools/list")["result"]


def test_the_handshake_version_can_be_limited(start: Start) -> None:
    assert start("--version-limit", "2024-11-05").initialize()["protocolVersion"] == "2024-11-05"
    assert start().initialize("1999-01-01")["protocolVersion"] == "2025-11-25"


def test_the_modern_era_refuses_initialize_and_requests_without_their_envelope(start: Start) -> None:
    client = start("--era", "modern")
    refused = client.request("initialize", {"protocolVersion": "2025-11-25"})["error"]
    assert refused["code"] == -32022
    assert refused["data"] == {"supported": [MODERN], "requested": "2025-11-25"}
    bare = client.request("tools/list")["error"]
    assert bare["code"] == -32602
    assert "io.modelcontextprotocol/clientCapabilities" in bare["message"]
    future = client.request("tools/list", envelope(version="2099-01-01"))["error"]
    assert (future["code"], future["data"]["requested"]) == (-32022, "2099-01-01")
    assert client.modern("ping")["error"]["code"] == -32601


@pytest.mark.parametrize(
    "method",
    ["server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"],
)
def test_modern_results_are_typed_and_cacheable(start: Start, method: str) -> None:
    result = start("--era", "modern", "--name", "n", "--version", "2").modern(method)["result"]
    assert result["resultType"] == "complete"
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "n", "version": "2"}


def test_the_first_request_decides_the_era_of_a_dual_server(start: Start) -> None:
    modern = start("--era", "both")
    assert modern.modern("server/discover")["result"]["supportedVersions"] == [MODERN]
    assert modern.request("initialize", {"protocolVersion": "2025-11-25"})["error"]["code"] == -32022
    legacy = start("--era", "both")
    legacy.initialize()
    assert legacy.modern("tools/list")["error"]["code"] == -32600


# Lists, resources, prompts, unknown methods


def test_lists_come_in_pages(handshake: Start) -> None:
    client = handshake("--page-size", 5)
    names: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        result = client.request("tools/list", cursor)["result"]
        assert len(result["tools"]) <= 5
        names += [tool["name"] for tool in result["tools"]]
        if "nextCursor" not in result:
            break
        cursor = {"cursor": result["nextCursor"]}
    assert names == [tool["name"] for tool in fake_catalog.BUILT_IN]
    assert client.request("tools/list", {"cursor": "nonsense"})["error"]["code"] == -32602


def test_a_catalog_file_adds_changes_and_removes_tools(handshake: Start, tmp_path: Path) -> None:
    catalog, effects = tmp_path / "catalog.json", tmp_path / "effects"
    extra = {"name": "pay", "behaves": "effect", "annotations": {"destructiveHint": True}}
    changed = {"name": "echo", "description": "changed"}
    catalog.write_text(json.dumps({"tools": [extra, changed, "plain"], "remove": ["hang"]}))
    client = handshake("--catalog", catalog, "--effects", effects, "--cwd-tool")
    tools = {tool["name"]: tool for tool in client.request("tools/list")["result"]["tools"]}
    assert tools["pay"]["annotations"] == {"destructiveHint": True}
    assert "behaves" not in tools["pay"]
    assert tools["echo"]["description"] == "changed"
    assert "hang" not in tools
    client.call("pay", {"key": "k"})
    assert ledger(effects) == [f"pay k pid={client.pid}"]
    assert structured(client.call("plain", {"a": 1})) == {"tool": "plain", "arguments": {"a": 1}}
    assert text(client.call("cwd")) == os.getcwd()
    assert client.call("hang")["error"]["code"] == -32602


def test_resources_prompts_and_completion(handshake: Start) -> None:
    client = handshake("--prefix-uri", "other")
    listed = [entry["uri"] for entry in client.request("resources/list")["result"]["resources"]]
    assert listed == ["other://a", "other://b"]
    read = client.request("resources/read", {"uri": "other://item/7"})["result"]["contents"][0]
    assert read == {"uri": "other://item/7", "mimeType": "text/plain", "text": "other://item/7 revision 0"}
    assert client.request("resources/read", {"uri": "fake://a"})["error"]["code"] == -32002
    greeting = client.request("prompts/get", {"name": "greet", "arguments": {"who": "ann"}})["result"]
    assert greeting["messages"][0]["content"]["text"] == "greet ann"
    reference = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "b"}}
    assert client.request("completion/complete", reference)["result"]["completion"]["values"] == ["bob"]


def test_unknown_methods_and_notifications_pass(handshake: Start) -> None:
    client = handshake()
    assert client.request("x/echo", {"a": [1, None]})["result"] == {"a": [1, None]}
    assert client.request("x/unknown")["error"]["code"] == -32601
    client.notify("notifications/x/ping", {"n": 1})
    assert client.wait_notification("notifications/x/pong")["params"] == {"n": 1}
    client.send_bytes(b"{broken\n")
    client.wait_until(lambda: bool(client.strays), 5, "parse error")
    assert client.strays[0]["error"]["code"] == -32700


def test_custom_meta_returns_what_it_got_and_members_nobody_knows(handshake: Start) -> None:
    client = handshake()
    params = {"name": "custom_meta", "arguments": {"x": 1}, "_meta": {"x/y": [1]}, "odd": {"kept": True}}
    response = client.request("tools/call", params)
    assert json.loads(text(response)) == params
    assert response["x-frame"] == "kept"
    assert response["result"]["x-extra"] == {"kept": True}


# Session state


def test_subscriptions_log_level_and_roots_are_remembered(handshake: Start) -> None:
    client = handshake()
    assert structured(client.call("touch_resource", {"uri": "fake://a"})) == {"notified": 0}
    client.request("resources/subscribe", {"uri": "fake://a"})
    client.request("logging/setLevel", {"level": "error"})
    assert structured(client.call("touch_resource", {"uri": "fake://a"})) == {"notified": 1}
    assert client.wait_notification("notifications/resources/updated")["params"] == {"uri": "fake://a"}
    assert structured(client.call("log", {"level": "info", "data": 1})) == {"sent": False}
    assert structured(client.call("log", {"level": "alert", "data": {"a": 1}})) == {"sent": True}
    assert client.wait_notification("notifications/message")["params"]["data"] == {"a": 1}
    client.on_request = lambda method, params: {"roots": [{"uri": "file:///r"}]}
    client.call("ask", {"method": "roots/list"})
    who = structured(client.call("whoami"))
    assert who["pid"] == client.pid
    assert who["initialized"] is True
    assert who["initialize"]["clientInfo"]["name"] == "raw-client"
    assert (who["log_level"], who["subscriptions"]) == ("error", ["fake://a"])
    assert who["roots"] == [{"uri": "file:///r"}]
    client.request("resources/unsubscribe", {"uri": "fake://a"})
    assert structured(client.call("touch_resource", {"uri": "fake://a"})) == {"notified": 0}


def test_it_asks_for_the_roots_when_it_wants_them(start: Start) -> None:
    client = start("--want-roots")
    client.on_request = lambda method, params: {"roots": []}
    client.initialize()
    client.wait_request("roots/list")
    client.notify("notifications/roots/list_changed")
    client.wait_request("roots/list", count=2)


def test_a_changed_catalog_is_announced(handshake: Start) -> None:
    client = handshake()
    client.call("change_catalog", {"add": "fresh", "remove": "big"})
    client.wait_notification("notifications/tools/list_changed")
    names = [tool["name"] for tool in client.request("tools/list")["result"]["tools"]]
    assert "fresh" in names
    assert "big" not in names


def test_listen_streams_get_what_they_asked_for_until_they_are_cancelled(start: Start) -> None:
    client = start("--era", "modern")
    stream = client.listen({"toolsListChanged": True, "resourceSubscriptions": ["fake://a"]}, id="L")
    client.listen({"promptsListChanged": True})
    assert client.notifications[0]["params"] == {
        "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["fake://a"]},
        "_meta": {SUBSCRIPTION: "L"},
    }
    assert structured(client.modern_call("change_catalog", {"add": "fresh"})) == {"notified": 1}
    changed = client.wait_notification("notifications/tools/list_changed")
    assert changed["params"]["_meta"] == {SUBSCRIPTION: "L"}
    client.modern_call("touch_resource", {"uri": "fake://a"})
    updated = client.wait_notification("notifications/resources/updated")
    assert updated["params"] == {"uri": "fake://a", "_meta": {SUBSCRIPTION: "L"}}
    client.cancel(stream)
    assert structured(client.modern_call("change_catalog", {"add": "later"})) == {"notified": 0}
    assert structured(client.modern_call("close_listens")) == {"ended": 1}
    assert "L" not in client.answers


def test_modern_log_messages_need_the_request_to_opt_in(start: Start) -> None:
    client = start("--era", "modern")
    assert structured(client.modern_call("log", {"level": "error"})) == {"sent": False}
    params = {"name": "log", "arguments": {"level": "error", "data": "x"}}
    response = client.request("tools/call", envelope(params, log_level="warning"))
    assert structured(response) == {"sent": True}


# Questions to the client


def test_ask_returns_the_clients_answer_or_its_error(handshake: Start) -> None:
    client = handshake()
    client.on_request = lambda method, params: {"action": "accept", "content": {"name": method}}
    answer = client.call("ask", {"method": "elicitation/create"})
    assert json.loads(text(answer)) == {"action": "accept", "content": {"name": "elicitation/create"}}
    assert client.requests[0]["id"] == 0
    client.on_request = lambda method, params: ClientError(-1, "no")
    refused = client.call("ask", {"method": "ping"})
    assert refused["result"]["isError"] is True
    assert json.loads(text(refused))["message"] == "no"


def test_a_cancelled_ask_withdraws_its_question(handshake: Start, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    client = handshake("--effects", effects)
    client.on_request = lambda method, params: None
    identity = client.start_call("ask", {"key": "k"})
    asked = client.wait_request("sampling/createMessage")
    client.cancel(identity)
    withdrawn = client.wait_notification("notifications/cancelled")
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert eventually(lambda: ledger(effects) == ["cancelled k"])
    assert identity not in client.answers


def test_a_modern_ask_is_input_required_and_any_generation_serves_the_retry(start: Start) -> None:
    arguments = {"method": "elicitation/create", "key": "k"}
    first = start("--era", "modern").modern_call("ask", arguments)["result"]
    assert first["resultType"] == "input_required"
    assert first["inputRequests"]["ask-1"]["method"] == "elicitation/create"
    answers = {"ask-1": {"action": "decline"}}
    successor = start("--era", "modern")
    retry = successor.modern_call(
        "ask", arguments, inputResponses=answers, requestState=first["requestState"]
    )
    assert json.loads(text(retry)) == answers
    forged = successor.modern_call("ask", arguments, inputResponses=answers, requestState="forged")
    assert forged["error"]["code"] == -32602


def test_ask_then_die_leaves_its_question_open(handshake: Start) -> None:
    client = handshake()
    client.on_request = lambda method, params: None
    client.start_call("ask_then_die")
    client.wait_request("sampling/createMessage")
    assert client.wait_end() == -9


# Effects, crashes and the probe


@pytest.mark.parametrize("tool", ["effect", "read_effect", "idem_effect"])
@pytest.mark.parametrize(
    ("moment", "performed", "answered"),
    [("before", False, False), ("during", True, False), ("after", True, False), ("after_answer", True, True)],
)
def test_an_effect_dies_at_the_named_moment_and_its_successor_does_not(
    handshake: Start, tmp_path: Path, tool: str, moment: str, performed: bool, answered: bool
) -> None:
    effects, dispatches = tmp_path / "effects", tmp_path / "dispatches"
    options = ("--effects", effects, "--dispatches", dispatches, "--state", tmp_path / "state")
    arguments = {"key": "k", "crash": moment, "times": 1}

    victim = handshake(*options)
    identity = victim.start_call(tool, arguments)
    assert victim.wait_end() == -9
    victim.kill()
    assert ledger(dispatches) == [f"{tool} k"]
    assert ledger(effects) == ([f"{tool} k pid={victim.pid}"] if performed else [])
    assert (identity in victim.answers) is answered
    assert bool(victim.noise) is (moment == "during")

    successor = handshake(*options)
    probe = structured(successor.call("find_effect", {"key": "k"}))
    assert probe["status"] == ("done" if performed else "absent")
    if performed:
        assert probe["result"]["structuredContent"] == {"tool": tool, "key": "k", "pid": victim.pid}
    assert structured(successor.call(tool, arguments))["pid"] == successor.pid


def test_the_probe_admits_when_it_cannot_know(handshake: Start) -> None:
    assert structured(handshake().call("find_effect", {"key": "k"})) == {"status": "unknown"}


# Waiting, cancellation, progress


def test_others_are_answered_while_one_call_waits(handshake: Start) -> None:
    client = handshake()
    hung, slow = client.start_call("hang"), client.start_call("slow", {"ms": 200})
    assert text(client.call("echo", {"text": "quick"})) == "quick"
    assert slow not in client.answers
    client.wait(slow)
    assert hung not in client.answers


def test_a_cancelled_call_is_not_answered_and_a_deaf_one_is(handshake: Start, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    client = handshake("--effects", effects)
    cancelled = client.start_call("slow", {"ms": 60_000, "key": "a"})
    deaf = client.start_call("slow", {"ms": 200, "key": "b", "deaf": True})
    client.cancel(cancelled)
    client.cancel(deaf)
    client.wait(deaf)
    assert eventually(lambda: ledger(effects) == ["cancelled a"])
    assert cancelled not in client.answers


def test_progress_is_reported_for_the_token_zero(handshake: Start) -> None:
    client = handshake()
    client.call("progress", {"n": 3}, meta={"progressToken": 0})
    params = [frame["params"] for frame in client.notifications]
    assert [(each["progressToken"], each["progress"]) for each in params] == [(0, 1), (0, 2), (0, 3)]


def test_progress_can_end_in_a_crash(handshake: Start, tmp_path: Path) -> None:
    client = handshake("--state", tmp_path / "state")
    client.start_call("progress", {"n": 5, "crash_at": 2, "times": 1}, meta={"progressToken": "t"})
    assert client.wait_end() == -9
    client.kill()
    assert len(client.notifications) == 2


# Faults


def test_a_wedged_server_answers_nothing_until_it_is_over(handshake: Start) -> None:
    client = handshake()
    slow = client.start_call("slow", {"ms": 150})
    client.start_call("wedge", {"ms": 1000})
    ping = client.start("ping")
    with pytest.raises(TimeoutError):
        client.wait(ping, timeout=0.25)
    assert slow not in client.answers
    client.wait(ping)
    client.wait(slow)


def test_a_server_that_stops_reading_still_answers_what_runs(handshake: Start) -> None:
    client = handshake()
    slow = client.start_call("slow", {"ms": 100})
    client.call("stop_reading", {"ms": 1000})
    ping = client.start("ping")
    client.wait(slow)
    assert ping not in client.answers
    client.wait(ping)


@pytest.mark.parametrize("kind", ["noise", "notifications", "junk_json"])
def test_a_flood_lets_answers_through(handshake: Start, kind: str) -> None:
    client = handshake()
    client.call("flood", {"seconds": 0.1, "kind": kind})
    assert text(client.call("echo", {"text": "dry"})) == "dry"
    assert len(client.noise) + len(client.notifications) + len(client.strays) > 100


@pytest.mark.parametrize("kind", fake_faults.BAD_KINDS)
def test_bad_answers_are_bad_and_the_session_lives(handshake: Start, kind: str) -> None:
    client = handshake()
    arguments = {"kind": kind, "delay_ms": 50, "bytes": 100_000, "then": "answer"}
    identity = client.start_call("answer_badly", arguments)
    client.wait_until(
        lambda: any(
            "after all" in json.dumps(answer.get("result")) for answer in client.answers.get(identity, [])
        ),
        10,
        "the good answer",
    )
    seen = {
        "noise": len(client.noise),
        "strays": len(client.strays),
        "answers": len(client.answers[identity]),
        "foreign": len(client.answers.get(987654321, [])) + len(client.answers.get("nobody-asked", [])),
    }
    nowhere = {"noise": 0, "strays": 0, "answers": 1, "foreign": 0}
    expected: dict[str, dict[str, int]] = {
        "duplicate": {"answers": 3},
        "foreign": {"foreign": 2},
        "half_frame": {"noise": 1},
        "nan": {"noise": 1},
        "bad_utf8": {"noise": 1},
        "frame_not_object": {"strays": 1},
        "neither": {"strays": 1},
        "null_id": {"strays": 1},
        "wrong_id_type": {},
        "duplicate_member": {},
    }
    assert seen == {**nowhere, **expected.get(kind, {"answers": 2})}
    assert client.request("ping")["result"] == {}


def test_a_bad_answer_can_be_the_last_word(handshake: Start) -> None:
    client = handshake()
    client.start_call("answer_badly", {"kind": "half_frame", "then": "die"})
    assert client.wait_end() == -9
    client.kill()
    assert not client.noise[-1].endswith(b"\n")


def test_a_grandchild_holds_the_pipe_after_the_server_died(handshake: Start) -> None:
    client = handshake()
    orphan = structured(client.call("grandchild", {"seconds": 20}))["pid"]
    client.start_call("die", {"signal": "KILL"})
    assert client.wait_end() == -9
    try:
        os.kill(orphan, 0)
        assert not client.ended
    finally:
        os.kill(orphan, 9)
    with pytest.raises(Ended):
        client.wait_until(lambda: False, 5, "nothing")


@pytest.mark.parametrize(
    ("arguments", "code"), [({}, -9), ({"signal": 15}, -15), ({"signal": "SIGSEGV"}, -11), ({"code": 7}, 7)]
)
def test_it_dies_as_ordered(handshake: Start, arguments: dict[str, Any], code: int) -> None:
    client = handshake()
    client.start_call("die", arguments)
    assert client.wait_end() == code


def test_a_big_answer_arrives_whole(handshake: Start) -> None:
    assert len(text(handshake().call("big", {"bytes": 3_000_000}))) == 3_000_000


# The official client


async def _sample(context: object, params: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="sampled"))


async def _elicit(context: object, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "ann"})


def official(mode: str, *options: str) -> Client:
    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *options])
    return Client(
        server,
        mode=mode,
        sampling_callback=_sample,
        elicitation_callback=_elicit,
        read_timeout_seconds=10,
    )


def said(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


ERAS = [
    ("legacy", "handshake"),
    ("legacy", "both"),
    (MODERN, "modern"),
    (MODERN, "both"),
    ("auto", "handshake"),
]


@pytest.mark.parametrize(("mode", "era"), [*ERAS, ("auto", "modern"), ("auto", "both")])
def test_the_official_client_sees_a_complete_and_valid_server(mode: str, era: str) -> None:
    async def scenario() -> None:
        async with official(mode, "--era", era) as client:
            tools = await client.list_tools()
            assert {tool.name for tool in tools.tools} == {
                str(tool["name"]) for tool in fake_catalog.BUILT_IN
            }
            result = await client.call_tool("echo", {"text": "hi"})
            assert said(result) == "hi"
            assert result.structured_content == {"text": "hi"}
            assert len((await client.list_resources()).resources) == 2
            assert len((await client.list_resource_templates()).resource_templates) == 1
            assert len((await client.list_prompts()).prompts) == 1
            await client.read_resource("fake://a")
            await client.get_prompt("greet", {"who": "ann"})
            expected = "handshake" if era == "handshake" or mode == "legacy" else "modern"
            who = await client.call_tool("whoami")
            assert who.structured_content is not None
            assert who.structured_content["era"] == expected

    asyncio.run(scenario())


@pytest.mark.parametrize(("mode", "era"), [("legacy", "handshake"), (MODERN, "modern")])
def test_the_official_client_answers_questions_and_hears_progress(mode: str, era: str) -> None:
    async def scenario() -> None:
        heard: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        async with official(mode, "--era", era) as client:
            sampled = await client.call_tool("ask", {"method": "sampling/createMessage"})
            assert "sampled" in said(sampled)
            elicited = await client.call_tool("ask", {"method": "elicitation/create", "rounds": 2})
            assert "ann" in said(elicited)
            await client.call_tool("progress", {"n": 3, "delay_ms": 10}, progress_callback=hear)
        assert heard == [1, 2, 3]

    asyncio.run(scenario())


def test_the_official_client_can_listen() -> None:
    async def scenario() -> None:
        async with (
            official(MODERN, "--era", "modern") as client,
            client.listen(tools_list_changed=True, resource_subscriptions=["fake://a"]) as stream,
        ):
            await client.call_tool("change_catalog", {"add": "fresh"})
            assert await anext(stream) == ToolsListChanged()
            await client.call_tool("touch_resource", {"uri": "fake://a"})
            assert await anext(stream) == ResourceUpdated(uri="fake://a")
            await client.call_tool("close_listens")
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    asyncio.run(scenario())
