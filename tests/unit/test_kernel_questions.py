"""What servers ask and announce, in all four pairs of eras: questions, subscriptions, levels, roots (laws 13, 14)."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kernel.stage import ENVELOPE, Stage, tool
from perdure.kernel.events import Reload
from perdure.protocol.eras import ENVELOPE_KEYS, META_SUBSCRIPTION, META_VERSION, Era
from perdure.protocol.mounts import Limits, MountSpec

MOUNTED = MountSpec("m", prefix="m__", call_s=60.0)
TOOLS = [tool("look", "read_only"), tool("send")]
DONE = {"content": [{"type": "text", "text": "done"}]}


def serving(
    client: Era = "handshake", server: Era = "handshake", limits: Limits | None = None, **capabilities: Any
) -> Stage:
    stage = Stage(MOUNTED, limits=limits)
    if client == "handshake":
        stage.initialize()
    else:
        stage.request("d", "server/discover", modern=True)
    stage.serve("m", TOOLS, era=server, **capabilities)
    return stage


def ask(stage: Stage, number: int, method: str = "elicitation/create", generation: int = 1) -> None:
    stage.says("m", generation, {"id": number, "method": method, "params": {"q": number}})


# --- the four pairs: a plain call -------------------------------------------------------------------


@pytest.mark.parametrize("server", ["handshake", "modern"])
@pytest.mark.parametrize("client", ["handshake", "modern"])
def test_a_call_is_complete_and_valid_in_every_pair_of_eras(client: Era, server: Era) -> None:
    stage = serving(client, server)
    stage.call(1, "m__look", {"x": 1}, modern=client == "modern", progressToken=0)
    (sent,) = stage.got("m", "tools/call")
    assert (sent.params["name"], sent.params["arguments"]) == ("look", {"x": 1})
    meta = sent.params["_meta"]
    assert meta["progressToken"] == sent.id
    assert (META_VERSION in meta) == (server == "modern")
    assert server == "modern" or not set(meta) & set(ENVELOPE_KEYS)
    result = {**DONE, "resultType": "complete"} if server == "modern" else DONE
    stage.reply(sent, result)
    answer = stage.answer(1)["result"]
    assert answer["content"] == DONE["content"]
    assert client == "handshake" or answer["resultType"] == "complete"


def test_a_2026_client_sees_the_tools_of_a_legacy_server_complete() -> None:
    stage = serving("modern", "handshake")
    stage.request(1, "tools/list", modern=True)
    result = stage.answer(1)["result"]
    assert {"resultType", "ttlMs", "cacheScope"} <= set(result)
    assert {"m__look", "m__send"} <= {t["name"] for t in result["tools"]}
    assert all("inputSchema" in t for t in result["tools"])


def test_a_missing_resource_is_told_in_the_clients_own_code() -> None:
    for client, code in (("handshake", -32002), ("modern", -32602)):
        stage = serving(client, resources={})  # type: ignore[arg-type]
        finish_lists(stage)
        stage.request(1, "resources/read", {"uri": "a:b"}, modern=client == "modern")
        stage.refuse(stage.got("m", "resources/read")[0], -32002)
        assert stage.answer(1)["error"]["code"] == code


def finish_lists(stage: Stage, *resources: str, generation: int = 0) -> None:
    found = generation or stage.newest("m")
    listed = [{"uri": uri, "name": uri} for uri in resources]
    stage.reply(stage.got("m", "resources/list", found)[-1], {"resources": listed})
    stage.reply(stage.got("m", "resources/templates/list", found)[-1], {"resourceTemplates": []})


# --- a handshake server asks a handshake client -----------------------------------------------------


def test_a_question_travels_under_the_hosts_id_and_its_answer_goes_back_once() -> None:
    stage = serving()
    ask(stage, 5)
    (question,) = stage.heard("elicitation/create")
    assert question["params"] == {"q": 5}
    stage.send({"id": question["id"], "result": {"action": "accept"}})
    stage.send({"id": question["id"], "result": {"action": "accept"}})
    answers = [s.message for s in stage.sent if s.message.get("id") == 5 and "result" in s.message]
    assert answers == [{"jsonrpc": "2.0", "id": 5, "result": {"action": "accept"}}]
    assert stage.kernel.state.metrics.quarantined["unexpected_client_answer"] == 1


def test_when_the_asker_is_lost_the_client_is_told_to_drop_the_question_and_it_is_not_repeated() -> None:
    stage = serving()
    ask(stage, 5)
    (question,) = stage.heard("elicitation/create")
    stage.lose("m")
    (cancelled,) = stage.heard("notifications/cancelled")
    assert cancelled["params"]["requestId"] == question["id"]
    stage.serve("m", TOOLS)
    stage.send({"id": question["id"], "result": {}})
    assert len(stage.heard("elicitation/create")) == 1
    assert not [s for s in stage.sent if s.message.get("id") == 5 and "result" in s.message]


def test_a_server_that_withdraws_its_question_withdraws_it_everywhere() -> None:
    stage = serving()
    ask(stage, 5)
    stage.says("m", 1, {"method": "notifications/cancelled", "params": {"requestId": 5}})
    assert (
        stage.heard("notifications/cancelled")[0]["params"]["requestId"]
        == stage.heard("elicitation/create")[0]["id"]
    )
    assert stage.kernel.state.asks == {}


def test_a_question_the_client_cannot_take_is_refused_without_asking_it() -> None:
    stage = Stage(MOUNTED)
    stage.initialize(roots={})
    stage.serve("m", TOOLS)
    ask(stage, 5)
    assert stage.heard("elicitation/create") == []
    assert [s.message["error"]["code"] for s in stage.sent if s.message.get("id") == 5] == [-32601]


def test_questions_are_bounded() -> None:
    stage = serving(limits=Limits(asks=1))
    ask(stage, 5)
    ask(stage, 6)
    assert len(stage.heard("elicitation/create")) == 1
    assert [s.message["error"]["code"] for s in stage.sent if s.message.get("id") == 6] == [-32600]


def test_the_client_is_not_asked_before_it_is_ready() -> None:
    stage = Stage(MOUNTED)
    stage.request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}})
    stage.serve("m", TOOLS)
    ask(stage, 5)
    assert stage.heard("elicitation/create") == []
    stage.notify("notifications/initialized")
    assert len(stage.heard("elicitation/create")) == 1


def test_while_a_person_thinks_the_call_does_not_run_out_of_time() -> None:
    stage = serving()
    stage.call(1, "m__send")
    ask(stage, 5)
    stage.wait(200.0)
    assert stage.answers(1) == []
    stage.send({"id": stage.heard("elicitation/create")[0]["id"], "result": {}})
    stage.reply(stage.got("m", "tools/call")[0], DONE)
    assert stage.answer(1)["result"] == DONE


def wait_for_a_live_server(stage: Stage, seconds: float) -> None:
    """Let time pass while the server answers the host's pings and nothing else."""
    until = stage.now + seconds
    answered = 0
    while (wake := stage.kernel.next_wake()) is not None and wake <= until:
        stage.tick()
        for ping in stage.got("m", "ping")[answered:]:
            stage.reply(ping, {})
            answered += 1
    stage.wait(until - stage.now)


def test_a_question_gives_time_only_to_the_call_it_was_asked_for() -> None:
    stage = serving()
    stage.call(1, "m__send")
    ask(stage, 5)
    stage.call(2, "m__look")

    wait_for_a_live_server(stage, 200.0)

    assert stage.answers(1) == []
    assert stage.answer(2)["error"]["data"]["code"] == "deadline"


def test_a_question_that_is_not_about_any_call_gives_time_to_none() -> None:
    stage = serving()
    ask(stage, 5)
    stage.call(1, "m__send")

    wait_for_a_live_server(stage, 200.0)

    assert stage.answer(1)["error"]["data"]["code"] == "deadline"


def test_a_question_that_is_never_answered_is_taken_back_and_the_call_runs_out_of_time() -> None:
    stage = serving(limits=Limits(question_s=500.0))
    stage.call(1, "m__send")
    ask(stage, 5)

    wait_for_a_live_server(stage, 1000.0)

    (question,) = stage.heard("elicitation/create")
    assert stage.heard("notifications/cancelled")[0]["params"]["requestId"] == question["id"]
    assert [s.message["error"]["code"] for s in stage.sent if s.message.get("id") == 5] == [-32600]
    assert stage.answer(1)["error"]["data"]["code"] == "deadline"
    assert stage.kernel.state.asks == {}


def test_a_2026_servers_question_that_is_never_answered_ends_its_call() -> None:
    stage = serving("handshake", "modern", Limits(question_s=500.0))
    stage.call(1, "m__send")
    stage.reply(stage.got("m", "tools/call")[0], NEEDS)

    wait_for_a_live_server(stage, 1000.0)

    assert "not answered in time" in stage.answer(1)["error"]["message"]
    assert stage.kernel.state.asks == {}
    assert stage.kernel.state.calls == {}


# --- a handshake server asks a 2026 client ----------------------------------------------------------


def test_a_legacy_servers_question_becomes_input_required_and_the_retry_carries_the_answer() -> None:
    stage = serving("modern")
    stage.call(1, "m__send", modern=True)
    ask(stage, 5)
    asked = stage.answer(1)["result"]
    assert asked["resultType"] == "input_required"
    ((key, question),) = asked["inputRequests"].items()
    assert question == {"method": "elicitation/create", "params": {"q": 5}}
    retry = {"name": "m__send", "arguments": {}, "requestState": asked["requestState"]}
    stage.request(2, "tools/call", {**retry, "inputResponses": {key: {"action": "accept"}}}, modern=True)
    assert [s.message["result"] for s in stage.sent if s.message.get("id") == 5] == [{"action": "accept"}]
    assert len(stage.got("m", "tools/call")) == 1  # the same call goes on
    stage.reply(stage.got("m", "tools/call")[0], DONE)
    assert stage.answer(2)["result"]["resultType"] == "complete"


def test_a_ticket_whose_server_is_gone_is_an_honest_unknown() -> None:
    stage = serving("modern")
    stage.call(1, "m__send", modern=True)
    ask(stage, 5)
    state = stage.answer(1)["result"]["requestState"]
    stage.lose("m")
    stage.serve("m", TOOLS)
    stage.request(2, "tools/call", {"name": "m__send", "requestState": state}, modern=True)
    assert stage.answer(2)["error"]["data"]["code"] == "question_lost"


def test_a_client_that_does_not_come_back_frees_the_server_and_its_question() -> None:
    stage = serving("modern")
    stage.call(1, "m__send", modern=True)
    ask(stage, 5)
    for _ in range(3):
        stage.wait(70.0)
    assert stage.kernel.state.calls == {}
    assert stage.kernel.state.asks == {}
    assert "error" in next(s.message for s in stage.sent if s.message.get("id") == 5)


def test_an_unreadable_answer_to_a_parked_call_is_kept_for_the_retry() -> None:
    from perdure.kernel.events import ChildFrame

    stage = serving("modern")
    stage.call(1, "m__send", modern=True)
    ask(stage, 5)
    state = stage.answer(1)["result"]["requestState"]
    stage.feed(
        ChildFrame("m", 1, b'{"jsonrpc":"2.0","id":%d,"result":[' % stage.got("m", "tools/call")[0].id)
    )
    assert len(stage.answers(1)) == 1
    stage.request(2, "tools/call", {"name": "m__send", "requestState": state}, modern=True)
    assert stage.answer(2)["error"]["code"] == -31094


def test_a_question_is_tied_to_a_call_of_the_generation_that_asks() -> None:
    stage = serving("modern")
    stage.call(1, "m__send", modern=True)
    stage.feed(Reload())
    stage.serve("m", TOOLS)
    ask(stage, 500, generation=2)
    assert stage.answers(1) == []
    assert [s.message["error"]["code"] for s in stage.sent if s.message.get("id") == 500] == [-32600]


# --- a 2026 server asks -----------------------------------------------------------------------------


NEEDS = {
    "resultType": "input_required",
    "inputRequests": {"a": {"method": "elicitation/create", "params": {"q": 1}}},
    "requestState": "opaque",
}


def test_a_2026_servers_questions_reach_a_handshake_client_and_the_call_goes_on_with_the_answers() -> None:
    stage = serving("handshake", "modern")
    stage.call(1, "m__send", {"x": 1})
    stage.reply(stage.got("m", "tools/call")[0], NEEDS)
    (question,) = stage.heard("elicitation/create")
    stage.send({"id": question["id"], "result": {"action": "accept"}})
    second = stage.got("m", "tools/call")[1]
    assert second.params["inputResponses"] == {"a": {"action": "accept"}}
    assert second.params["requestState"] == "opaque"
    assert second.params["arguments"] == {"x": 1}
    stage.reply(second, DONE)
    assert stage.answer(1)["result"] == DONE


def test_a_refused_question_ends_the_call_with_the_clients_own_error() -> None:
    stage = serving("handshake", "modern")
    stage.call(1, "m__send")
    stage.reply(stage.got("m", "tools/call")[0], NEEDS)
    stage.send({"id": stage.heard("elicitation/create")[0]["id"], "error": {"code": -1, "message": "no"}})
    assert stage.answer(1)["error"] == {"code": -1, "message": "no"}


def test_between_two_2026_peers_a_question_passes_untouched() -> None:
    stage = serving("modern", "modern")
    stage.call(1, "m__send", modern=True)
    stage.reply(stage.got("m", "tools/call")[0], NEEDS)
    assert stage.answer(1)["result"] == NEEDS
    again = {"name": "m__send", "requestState": "opaque", "inputResponses": {"a": {}}}
    stage.request(2, "tools/call", again, modern=True)
    assert stage.got("m", "tools/call")[1].params["requestState"] == "opaque"


def test_a_server_that_keeps_asking_is_stopped_by_a_bound() -> None:
    stage = serving("handshake", "modern", Limits(input_rounds=2))
    stage.call(1, "m__send")
    while not stage.answers(1):
        stage.reply(stage.got("m", "tools/call")[-1], NEEDS)
        if not stage.answers(1):
            stage.send({"id": stage.heard("elicitation/create")[-1]["id"], "result": {}})
    assert len(stage.heard("elicitation/create")) == 2
    assert stage.answer(1)["error"]["code"] == -32600


# --- law 13: what a successor is told ---------------------------------------------------------------


def test_subscriptions_and_the_log_level_are_handed_to_the_successor() -> None:
    stage = serving(resources={"subscribe": True}, logging={})
    finish_lists(stage, "a:b")
    stage.request(1, "resources/subscribe", {"uri": "a:b"})
    stage.reply(stage.got("m", "resources/subscribe")[0], {})
    stage.request(2, "logging/setLevel", {"level": "warning"})
    stage.lose("m")
    stage.serve("m", TOOLS, resources={"subscribe": True}, logging={})
    finish_lists(stage, "a:b")
    assert stage.got("m", "resources/subscribe", 2)[0].params == {"uri": "a:b"}
    assert stage.got("m", "logging/setLevel", 2)[0].params == {"level": "warning"}
    stage.says("m", 2, {"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
    assert stage.heard("notifications/resources/updated")[0]["params"] == {"uri": "a:b"}


def test_a_cancelled_subscription_is_not_handed_on() -> None:
    stage = serving(resources={"subscribe": True})
    finish_lists(stage, "a:b")
    for number, method in enumerate(("resources/subscribe", "resources/unsubscribe")):
        stage.request(number, method, {"uri": "a:b"})
        stage.reply(stage.got("m", method)[0], {})
    stage.lose("m")
    stage.serve("m", TOOLS, resources={"subscribe": True})
    finish_lists(stage, "a:b")
    assert stage.got("m", "resources/subscribe", 2) == []


def test_a_2026_server_carries_a_handshake_clients_subscription_on_its_stream() -> None:
    stage = serving("handshake", "modern", resources={"subscribe": True})
    finish_lists(stage, "a:b")
    stage.request(1, "resources/subscribe", {"uri": "a:b"})
    assert stage.answer(1)["result"] == {}
    assert stage.got("m", "resources/subscribe") == []
    stream = stage.got("m", "subscriptions/listen")[-1]
    assert stream.params["notifications"]["resourceSubscriptions"] == ["a:b"]


def test_known_roots_are_given_to_a_successor_before_it_serves() -> None:
    stage = serving()
    ask(stage, 5, "roots/list")
    stage.send({"id": stage.heard("roots/list")[0]["id"], "result": {"roots": [{"uri": "file:///w"}]}})
    stage.lose("m")
    from perdure.kernel.events import ChildStarted

    stage.feed(ChildStarted("m", 2, 1))
    ask(stage, 9, "roots/list", generation=2)
    assert [
        s.message["result"] for s in stage.sent if s.message.get("id") == 9 and "result" in s.message
    ] == [{"roots": [{"uri": "file:///w"}]}]
    stage.notify("notifications/roots/list_changed")
    assert stage.kernel.state.session.roots is None


# --- streams and levels of a 2026 client ------------------------------------------------------------


def test_a_2026_client_hears_of_changes_only_on_its_stream() -> None:
    stage = serving("modern", resources={"subscribe": True})
    finish_lists(stage, "a:b")
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    stage.request("s", "subscriptions/listen", {"notifications": wanted}, modern=True)
    (acknowledged,) = stage.heard("notifications/subscriptions/acknowledged")
    assert acknowledged["params"]["notifications"] == wanted
    assert stage.got("m", "resources/subscribe")[0].params == {"uri": "a:b"}
    stage.says("m", 1, {"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
    stage.says("m", 1, {"method": "notifications/resources/updated", "params": {"uri": "c:d"}})
    (updated,) = stage.heard("notifications/resources/updated")
    assert updated["params"] == {"uri": "a:b", "_meta": {META_SUBSCRIPTION: "s"}}
    stage.says("m", 1, {"method": "notifications/tools/list_changed"})
    stage.list_tools("m", [*TOOLS, tool("more")])
    finish_lists(stage, "a:b")
    assert stage.heard("notifications/tools/list_changed")[0]["params"]["_meta"] == {META_SUBSCRIPTION: "s"}
    stage.cancel("s")
    assert stage.got("m", "resources/unsubscribe")[0].params == {"uri": "a:b"}
    assert stage.answers("s") == []


def test_a_change_is_announced_only_after_the_new_list_is_known() -> None:
    stage = serving()
    stage.says("m", 1, {"method": "notifications/tools/list_changed"})
    assert stage.heard("notifications/tools/list_changed") == []
    stage.list_tools("m", [tool("other")])
    assert len(stage.heard("notifications/tools/list_changed")) == 1
    stage.request("l", "tools/list")
    assert "m__other" in [t["name"] for t in stage.answer("l")["result"]["tools"]]


def test_one_failed_list_does_not_make_the_tools_vanish() -> None:
    stage = serving()
    stage.says("m", 1, {"method": "notifications/tools/list_changed"})
    stage.refuse(stage.got("m", "tools/list")[-1], -32603)
    stage.request("l", "tools/list")
    assert "m__look" in [t["name"] for t in stage.answer("l")["result"]["tools"]]


def test_log_messages_reach_a_2026_client_only_while_a_request_asks_for_that_level() -> None:
    stage = serving("modern", logging={})
    log = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
    stage.says("m", 1, log)
    stage.call(1, "m__send", **{**ENVELOPE, "io.modelcontextprotocol/logLevel": "info"})
    assert stage.got("m", "logging/setLevel")[0].params == {"level": "info"}
    stage.says("m", 1, log)
    stage.says("m", 1, {"method": "notifications/message", "params": {"level": "debug", "data": "y"}})
    stage.reply(stage.got("m", "tools/call")[0], DONE)
    stage.says("m", 1, log)
    assert [m["params"]["data"] for m in stage.heard("notifications/message")] == ["x"]


def test_streams_are_bounded() -> None:
    stage = serving("modern", limits=Limits(listens=1))
    stage.request(1, "subscriptions/listen", {"notifications": {}}, modern=True)
    stage.request(2, "subscriptions/listen", {"notifications": {}}, modern=True)
    assert stage.answer(2)["error"]["code"] == -32602
