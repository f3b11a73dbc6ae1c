"""What servers ask of the client: sampling, elicitation, roots. The right answer reaches the right server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.raw_client import ClientError, Object
from testbed import ERA_PAIRS, ERAS, Bed, Client, Era

REPLIES: dict[str, Object] = {
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "sampled"},
        "model": "m",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "roots/list": {"roots": [{"uri": "file:///work", "name": "work"}]},
}


def answering(client: Client, tool: str, arguments: Object, replies: dict[str, Object]) -> Object:
    """Call a tool and answer its questions the way this client's era does; the terminal response."""
    client.on_request = lambda method, params: replies[method]
    response = client.use(tool, arguments)
    rounds = 0
    while client.era == "modern" and response.get("result", {}).get("resultType") == "input_required":
        rounds += 1
        assert rounds < 10
        asked = response["result"]["inputRequests"]
        given = {key: replies[question["method"]] for key, question in asked.items()}
        state = response["result"].get("requestState")
        response = client.use(tool, arguments, inputResponses=given, requestState=state)
    return response


def told(response: Object) -> Any:
    """What the fake says it was answered, without the name a 2026 server gave its question."""
    found = json.loads(response["result"]["content"][0]["text"])
    keys = [key for key in found if key.startswith("ask-")]
    return found[keys[0]] if keys else found


@ERA_PAIRS
@pytest.mark.parametrize("method", REPLIES)
def test_a_question_reaches_the_client_and_its_answer_the_server(
    bed: Bed, era: Era, server: Era, method: str
) -> None:
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake, era=era)
    response = answering(client, "fake__ask", {"method": method, "key": "k"}, REPLIES)
    assert told(response) == REPLIES[method]
    if era == "modern":
        assert client.requests == []  # a 2026 client is never sent a request


@ERA_PAIRS
def test_several_rounds_of_questions_belong_to_one_call(bed: Bed, era: Era, server: Era) -> None:
    client = bed.run(bed.fake(f"--era={server}"), era=era)
    response = answering(
        client, "fake__ask", {"method": "elicitation/create", "rounds": 3, "key": "k"}, REPLIES
    )
    assert told(response) == REPLIES["elicitation/create"]
    assert client.health()["pending"] == 0


@ERA_PAIRS
def test_a_call_of_a_tool_that_asks_reaches_a_handshake_server_only_once(
    bed: Bed, era: Era, server: Era
) -> None:
    """A 2026 server is called again with the answers: its tool has no other way to get them."""
    fake = bed.fake(f"--era={server}")
    client = bed.run(fake, era=era)
    answering(client, "fake__ask", {"method": "roots/list", "key": "k"}, REPLIES)
    assert fake.dispatches == ["ask k"] * (1 if server == "handshake" else 2)


@pytest.mark.parametrize("server", ERAS)
def test_two_servers_that_ask_at_the_same_time_get_their_own_answers(bed: Bed, server: Era) -> None:
    one, two = (bed.fake(f"--era={server}", name=name) for name in ("one", "two"))
    client = bed.run(one, two)
    client.on_request = lambda method, params: None  # both questions are open before either is answered
    calls = {
        name: client.begin_use(
            f"{name}__ask",
            {
                "method": "elicitation/create",
                "key": name,
                "params": {"message": name, "requestedSchema": {"type": "object", "properties": {}}},
            },
        )
        for name in ("one", "two")
    }
    client.wait_request("elicitation/create", count=2)
    # The fakes number their questions alike; the host's ids must not.
    assert len({request["id"] for request in client.requests}) == 2
    for request in reversed(client.requests):
        whose = request["params"]["message"]
        result = {"action": "accept", "content": {"name": f"for {whose}"}}
        client.send({"jsonrpc": "2.0", "id": request["id"], "result": result})
    for name, call in calls.items():
        assert told(client.wait(call))["content"] == {"name": f"for {name}"}


def test_two_servers_that_ask_a_2026_client_get_their_own_answers(bed: Bed) -> None:
    client = bed.run(*(bed.fake("--era=handshake", name=name) for name in ("one", "two")), era="modern")
    asked = {}
    for name in ("one", "two"):
        found = client.use(f"{name}__ask", {"method": "elicitation/create", "key": name})["result"]
        assert found["resultType"] == "input_required"
        asked[name] = found
    for name in ("two", "one"):
        (key,) = asked[name]["inputRequests"]
        reply = {"action": "accept", "content": {"name": f"for {name}"}}
        response = client.use(
            f"{name}__ask",
            {"method": "elicitation/create", "key": name},
            inputResponses={key: reply},
            requestState=asked[name]["requestState"],
        )
        assert told(response) == reply


def test_the_clients_error_is_what_the_server_gets(bed: Bed) -> None:
    client = bed.run(bed.fake("--era=handshake"))

    def refuse(method: str, params: Object) -> Object:
        raise ClientError(-1, "not today", {"why": "rain"})

    client.on_request = refuse
    result = client.use("fake__ask", {"method": "sampling/createMessage"})["result"]
    assert result["isError"]
    assert json.loads(result["content"][0]["text"]) == {
        "code": -1,
        "message": "not today",
        "data": {"why": "rain"},
    }


def test_a_server_cannot_ask_what_the_client_does_not_offer(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--era=handshake"), bed.fake("--era=modern", name="new")))
    client.initialize(capabilities={})
    result = client.use("fake__ask", {"method": "sampling/createMessage"})["result"]
    assert result["isError"]
    assert json.loads(result["content"][0]["text"])["code"] == -32601
    assert client.use("new__ask", {"method": "sampling/createMessage"})["error"]["code"] == -32021
    assert client.requests == []


def test_a_cancelled_call_takes_its_question_back(bed: Bed) -> None:
    fake = bed.fake("--era=handshake")
    client = bed.run(fake)
    client.on_request = lambda method, params: None
    call = client.begin_use("fake__ask", {"method": "elicitation/create", "key": "k"})
    question = client.wait_request("elicitation/create")
    client.cancel(call)
    withdrawn = client.wait_notification("notifications/cancelled")
    assert withdrawn["params"]["requestId"] == question["id"]
    assert call not in client.answers


def test_a_question_of_a_server_that_died_is_withdrawn_and_not_repeated(bed: Bed) -> None:
    fake = bed.fake("--era=handshake")
    client = bed.run(fake)
    client.on_request = lambda method, params: None
    error = client.use("fake__ask_then_die", {"method": "sampling/createMessage", "times": 1, "key": "k"})
    assert error["error"]["code"] == -31094
    question = client.wait_request("sampling/createMessage")
    withdrawn = client.wait_notification("notifications/cancelled")
    assert withdrawn["params"]["requestId"] == question["id"]
    # An answer that was already on its way belongs to nobody now.
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": REPLIES["sampling/createMessage"]})
    assert client.use_data("fake__whoami")["foreign_responses"] == 0
    assert len(client.requests) == 1
    assert fake.dispatches.count("ask_then_die k") == 1


def test_the_retry_after_the_asking_server_died_is_told_that_the_outcome_is_unknown(bed: Bed) -> None:
    fake = bed.fake("--era=handshake")
    client = bed.run(fake, era="modern")
    arguments = {"method": "sampling/createMessage", "times": 1, "key": "k", "delay_ms": 50}
    asked = client.use("fake__ask_then_die", arguments)["result"]
    client.wait_row("fake", restarts=1, state="ready")
    (key,) = asked["inputRequests"]
    error = client.use(
        "fake__ask_then_die",
        arguments,
        inputResponses={key: REPLIES["sampling/createMessage"]},
        requestState=asked["requestState"],
    )["error"]
    assert error["code"] == -31094
    assert error["data"]["outcome"] == "unknown"
    assert error["data"]["retry"] == "never"
    assert fake.dispatches.count("ask_then_die k") == 1


# Roots and the working directory


def test_every_server_learns_the_roots_and_runs_in_the_workspace(bed: Bed) -> None:
    servers = [
        bed.fake("--want-roots", f"--era={era}", name=name)
        for name, era in (("a", "handshake"), ("b", "both"))
    ]
    client = bed.start(bed.command(*servers))
    client.on_request = lambda method, params: {"roots": [{"uri": "file:///first"}]}
    client.initialize()
    for server in servers:
        found = until_roots(client, server.name, [{"uri": "file:///first"}])
        assert found["cwd"] == str(bed.workspace)


def test_changed_roots_are_asked_for_anew_by_every_server(bed: Bed) -> None:
    servers = [bed.fake("--want-roots", "--era=handshake", name=name) for name in ("a", "b")]
    client = bed.start(bed.command(*servers))
    client.on_request = lambda method, params: {"roots": [{"uri": "file:///first"}]}
    client.initialize()
    for server in servers:
        until_roots(client, server.name, [{"uri": "file:///first"}])
    client.on_request = lambda method, params: {"roots": [{"uri": "file:///second"}]}
    client.notify("notifications/roots/list_changed")
    for server in servers:
        assert until_roots(client, server.name, [{"uri": "file:///second"}])["roots_changed"] == 1


def test_a_successor_learns_the_roots_too(bed: Bed) -> None:
    client = bed.start(bed.command(bed.fake("--want-roots", "--era=handshake")))
    client.on_request = lambda method, params: {"roots": [{"uri": "file:///kept"}]}
    client.initialize()
    first = until_roots(client, "fake", [{"uri": "file:///kept"}])
    assert client.kill_mount("fake") == first["pid"]
    second = until_roots(client, "fake", [{"uri": "file:///kept"}])
    assert second["pid"] != first["pid"]


def test_a_wrapped_server_runs_where_the_client_started_it(bed: Bed, tmp_path: Path) -> None:
    client = bed.start(bed.wrap_command(bed.fake("--era=handshake")))
    client.initialize()
    assert client.use_data("whoami")["cwd"] == str(bed.workspace)


def until_roots(client: Client, mount: str, wanted: list[Object]) -> Object:
    """The fake asks for its roots on its own time; each of these asks whether it has them."""
    for _ in range(2000):
        found = client.use_data(f"{mount}__whoami")
        if found["roots"] == wanted:
            return found
    raise AssertionError(found)
