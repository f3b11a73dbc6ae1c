"""Invocations: dispatch, replay, probes, order, bounds, cancellation and deadlines (laws 1 to 10)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness.kernel.stage import Sent, Stage, tool
from perdure.kernel.events import ChildBacklog, ClientFrame
from perdure.kernel.state import Held, InFlight, Probing, Queued
from perdure.protocol.eras import META_CONTRACT
from perdure.protocol.mounts import Limits, MountSpec
from perdure.protocol.replay import NEVER, ProbeRequired

WORKER = MountSpec("w", builtin=True, call_s=60.0)
TOOLS = [
    tool("get", "convergent", conflict=["/path"]),
    tool("put", "probe", conflict=["/path"]),
    tool("once", "never"),
]
DONE = {"content": [{"type": "text", "text": "done"}]}


def serving(
    limits: Limits | None = None, spec: MountSpec = WORKER, tools: list[dict[str, Any]] = TOOLS
) -> Stage:
    stage = Stage(spec, limits=limits)
    stage.initialize()
    stage.serve(spec.name, tools)
    return stage


def calls(stage: Stage, mount: str = "w") -> list[Sent]:
    return stage.got(mount, "tools/call")


def names(stage: Stage, mount: str = "w") -> list[str]:
    """What the server saw, in order, by the number that each call carries."""
    return [str(s.params["arguments"].get("n", "")) for s in calls(stage, mount)]


def state_of(stage: Stage, identity: Any) -> object:
    return stage.kernel.state.calls[stage.kernel.state.ids[identity]].state


# --- C1: order, contract, accounting ----------------------------------------------------------------


def test_a_loss_replays_holds_and_rejects_by_class_and_in_order() -> None:
    stage = serving()
    for number, name in ((1, "get"), (2, "put"), (3, "once")):
        stage.call(number, name, {"n": number, "path": str(number)})
    stage.lose("w")
    # then: the third is answered at once, the first waits with no attempt used, the second is held
    assert stage.answer(3)["error"]["code"] == -31094
    assert stage.answer(3)["error"]["data"]["outcome"] == "unknown"
    assert isinstance(state_of(stage, 1), Queued)
    assert isinstance(state_of(stage, 2), Held)
    first = stage.kernel.state.calls[stage.kernel.state.ids[1]]
    assert (first.attempts, first.replays) == (1, 0)
    # when: the successor serves
    stage.serve("w", TOOLS)
    assert first.replays == 1
    (probe,) = stage.got("w", "perdure/probe")
    assert isinstance(state_of(stage, 2), Probing)
    stage.reply(probe, {"status": "absent"})
    assert names(stage) == ["1", "2", "3", "1", "2"]
    assert 3 not in stage.kernel.state.ids


def test_dispatch_is_marked_before_the_first_byte_so_a_failed_write_may_have_happened() -> None:
    stage = serving()
    stage.call(1, "once")
    # the frame went out in this very step; the pipe breaks before anything can be known
    stage.lose("w")
    data = stage.answer(1)["error"]["data"]
    assert (data["outcome"], data["attempts"], data["retry"]) == ("unknown", 1, "never")


# --- C2, H9: identity -------------------------------------------------------------------------------


def test_an_outstanding_id_is_refused_and_free_again_after_its_answer() -> None:
    stage = serving()
    stage.call(11, "get")
    stage.call(11, "get")
    assert stage.answers(None)[0]["error"]["data"] == {"class": "protocol", "code": "duplicate_id", "id": 11}
    assert len(calls(stage)) == 1
    stage.reply(calls(stage)[0], DONE)
    stage.reply(calls(stage)[0], DONE)  # a second answer is dropped and counted
    assert stage.answer(11)["result"] == DONE
    assert stage.kernel.state.metrics.quarantined["unexpected_answer"] == 1
    stage.call(11, "get")
    assert len(calls(stage)) == 2


def test_the_ids_seven_and_string_seven_are_two_requests() -> None:
    stage = serving()
    stage.call(7, "get", {"n": "int"})
    stage.call("7", "get", {"n": "text"})
    stage.reply(calls(stage)[1], {"content": [], "who": "text"})
    stage.reply(calls(stage)[0], {"content": [], "who": "int"})
    assert stage.answer(7)["result"]["who"] == "int"
    assert stage.answer("7")["result"]["who"] == "text"


# --- C3: before and after the boundary --------------------------------------------------------------


def test_queued_work_is_dispatched_first_after_a_loss_even_if_it_may_never_be_replayed() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.call(15, "once", {"n": 15})
    stage.lose("w")
    assert stage.answers(15) == []
    stage.serve("w", TOOLS)
    assert names(stage) == ["15"]
    stage.reply(calls(stage)[0], DONE)
    assert stage.answer(15)["result"] == DONE
    assert stage.kernel.state.metrics.totals.replays == 0


def test_completed_work_is_not_touched_by_a_loss() -> None:
    stage = serving()
    stage.call(16, "get")
    stage.reply(calls(stage)[0], DONE)
    stage.lose("w")
    stage.serve("w", TOOLS)
    assert len(calls(stage)) == 1
    assert stage.kernel.state.calls == {}


# --- C4, law 8: bounds ------------------------------------------------------------------------------


def test_a_queue_of_one_keeps_the_older_replay_and_refuses_the_younger() -> None:
    stage = serving(Limits(queue=1))
    stage.call(17, "get", {"n": 17})
    stage.call(18, "get", {"n": 18})
    stage.lose("w")
    assert stage.answer(18)["error"]["code"] == -31097
    stage.serve("w", TOOLS)
    assert names(stage) == ["17", "18", "17"]


def test_a_newcomer_over_the_pending_bound_is_refused_and_nothing_else_changes() -> None:
    stage = serving(Limits(pending=1))
    stage.call(1, "get")
    stage.call(2, "get")
    assert stage.answer(2)["error"]["code"] == -31096
    assert stage.answer(2)["error"]["data"]["outcome"] == "not_started"
    stage.reply(calls(stage)[0], DONE)
    stage.call(2, "get")
    assert len(calls(stage)) == 2


def test_a_newcomer_over_the_queue_bound_is_refused_while_the_server_starts() -> None:
    stage = Stage(WORKER, limits=Limits(queue=2))
    stage.initialize()
    for number in (1, 2, 3):
        stage.call(number, "get", {"n": number})
    assert stage.answer(3)["error"]["code"] == -31097
    stage.serve("w", TOOLS)
    assert names(stage) == ["1", "2"]


def test_a_full_outbox_and_the_in_flight_bound_hold_work_back_until_there_is_room() -> None:
    stage = serving(Limits(in_flight=1, outbox_bytes=10))
    stage.call(1, "get", {"n": 1})
    stage.call(2, "get", {"n": 2})
    assert names(stage) == ["1"]
    stage.feed(ChildBacklog("w", 1, 11))
    stage.reply(calls(stage)[0], DONE)
    assert names(stage) == ["1"]
    stage.feed(ChildBacklog("w", 1, 0))
    assert names(stage) == ["1", "2"]


# --- C7: every class has its disposition ------------------------------------------------------------


@pytest.mark.parametrize(("name", "expected"), [("get", Queued), ("put", Held), ("once", type(None))])
def test_every_replay_class_has_one_disposition_of_an_unknown_outcome(name: str, expected: type) -> None:
    stage = serving()
    stage.call(1, name)
    stage.lose("w")
    found = state_of(stage, 1) if 1 in stage.kernel.state.ids else None
    assert isinstance(found, expected)


def test_a_replay_class_is_derived_from_annotations_unless_the_registry_says_otherwise() -> None:
    for trust, replay, sent in ((True, {}, 2), (False, {}, 1), (True, {"look": NEVER}, 1)):
        spec = MountSpec("m", prefix="m__", trust_annotations=trust, replay=replay)
        stage = serving(spec=spec, tools=[tool("look", "read_only")])
        stage.call(1, "m__look")
        stage.lose("m")
        stage.serve("m", [tool("look", "read_only")])
        assert len(calls(stage, "m")) == sent, (trust, replay)


def test_an_unclassified_tool_is_never_replayed() -> None:
    spec = MountSpec("m", prefix="m__")
    stage = serving(spec=spec, tools=[tool("send")])
    stage.call(1, "m__send")
    stage.lose("m")
    assert stage.answer(1)["error"]["code"] == -31094


def test_the_workers_contract_does_not_reach_the_client() -> None:
    stage = serving()
    stage.request("l", "tools/list")
    assert all(META_CONTRACT not in t.get("_meta", {}) for t in stage.answer("l")["result"]["tools"])


# --- H8: the replay budget --------------------------------------------------------------------------


def test_the_second_loss_exhausts_a_budget_of_one_replay() -> None:
    stage = serving(Limits(replays=1))
    stage.call(1, "get")
    stage.lose("w")
    stage.serve("w", TOOLS)
    stage.lose("w")
    error = stage.answer(1)["error"]
    assert error["code"] == -31095
    assert (error["data"]["attempts"], error["data"]["outcome"]) == (2, "unknown")
    assert stage.kernel.state.mounts["w"].queue == []


def test_a_replayed_call_says_so_in_its_result() -> None:
    stage = serving()
    stage.call(1, "get")
    stage.lose("w")
    stage.serve("w", TOOLS)
    stage.reply(calls(stage)[-1], DONE)
    assert stage.answer(1)["result"]["_meta"] == {"perdure/outcome": {"outcome": "replayed", "attempts": 2}}


# --- H11, law 7: order and conflicts ----------------------------------------------------------------


def test_recovery_keeps_the_order_and_younger_work_comes_after() -> None:
    stage = serving()
    for number, name in ((21, "get"), (22, "put"), (23, "once")):
        stage.call(number, name, {"n": number, "path": "same"})
    stage.lose("w")
    stage.call(24, "get", {"n": 24, "path": "same"})
    stage.serve("w", TOOLS)
    # 22 is undecided, so what touches the same path waits: 21 and 24 too
    assert names(stage) == ["21", "22", "23"]
    stage.reply(stage.got("w", "perdure/probe")[0], {"status": "absent"})
    assert names(stage) == ["21", "22", "23", "21", "22", "24"]
    assert 23 not in stage.kernel.state.ids
    assert isinstance(state_of(stage, 22), InFlight)


def test_only_work_with_the_same_key_waits_behind_a_held_probe() -> None:
    stage = serving()
    stage.call(1, "put", {"n": 1, "path": "a"})
    stage.lose("w")
    stage.call(2, "put", {"n": 2, "path": "./a"})
    stage.call(3, "put", {"n": 3, "path": "b"})
    stage.serve("w", TOOLS)
    assert names(stage) == ["1", "3"]
    stage.reply(stage.got("w", "perdure/probe")[0], {"status": "done", "result": DONE})
    assert names(stage) == ["1", "3", "2"]


def test_work_that_waited_for_a_conflict_goes_on_when_the_probe_times_out() -> None:
    stage = serving(Limits(probe_s=3.0))
    stage.call(1, "put", {"n": 1, "path": "a"})
    stage.lose("w")
    stage.call(2, "put", {"n": 2, "path": "a"})
    stage.serve("w", TOOLS)
    stage.wait(3.0)
    assert stage.answer(1)["error"]["code"] == -31094
    assert names(stage) == ["1", "2"]


# --- H12, law 4: probes -----------------------------------------------------------------------------


def test_a_probe_that_finds_the_effect_answers_the_call_and_lets_the_next_through() -> None:
    stage = serving()
    stage.call(31, "put", {"n": 31, "path": "a"})
    stage.call(32, "get", {"n": 32, "path": "a"})
    stage.lose("w")
    stage.serve("w", TOOLS)
    (probe,) = stage.got("w", "perdure/probe")
    assert probe.params == {"key": calls(stage)[0].params["_meta"]["perdure/invocation"], "tool": "put"}
    stage.reply(probe, {"status": "done", "result": DONE})
    result = stage.answer(31)["result"]
    assert result["content"] == DONE["content"]
    assert result["_meta"]["perdure/outcome"] == {"outcome": "probed_done", "attempts": 1}
    assert names(stage) == ["31", "32", "32"]
    stage.reply(calls(stage)[-1], DONE)
    assert stage.answer(32)["result"]["content"] == DONE["content"]


@pytest.mark.parametrize("said", [{"status": "unknown"}, {"status": "running"}, {}, {"status": 5}])
def test_anything_but_a_clear_answer_leaves_the_outcome_unknown(said: dict[str, Any]) -> None:
    stage = serving()
    stage.call(1, "put", {"path": "a"})
    stage.lose("w")
    stage.serve("w", TOOLS)
    stage.reply(stage.got("w", "perdure/probe")[0], said)
    data = stage.answer(1)["error"]["data"]
    assert (data["outcome"], data["retry"]) == ("unknown", "after_probe")


def test_a_mounted_tool_is_probed_with_arguments_taken_from_the_lost_call() -> None:
    rule = ProbeRequired("find_charge", {"key": "/order/id"})
    spec = MountSpec("m", prefix="m__", replay={"charge": rule})
    stage = serving(spec=spec, tools=[tool("charge"), tool("find_charge")])
    stage.call(1, "m__charge", {"order": {"id": "o-1"}})
    stage.lose("m")
    stage.serve("m", [tool("charge"), tool("find_charge")])
    probe = calls(stage, "m")[-1]
    assert probe.params == {"name": "find_charge", "arguments": {"key": "o-1"}}
    said = {"content": [], "structuredContent": {"status": "done", "result": {"charged": 5}}}
    stage.reply(probe, said)
    assert stage.answer(1)["result"]["structuredContent"] == {"charged": 5}


def test_a_probe_that_cannot_be_asked_is_an_honest_unknown() -> None:
    spec = MountSpec("m", prefix="m__", replay={"charge": ProbeRequired("find", {"key": "/missing"})})
    stage = serving(spec=spec, tools=[tool("charge")])
    stage.call(1, "m__charge", {})
    stage.lose("m")
    stage.serve("m", [tool("charge")])
    assert stage.answer(1)["error"]["data"]["code"] == "probe_impossible"


def test_a_late_answer_of_a_lost_generation_changes_nothing() -> None:
    stage = serving()
    stage.call(1, "get")
    stage.lose("w")
    stage.reply(calls(stage)[0], DONE)
    assert stage.answers(1) == []
    assert stage.kernel.state.metrics.quarantined["stale_generation"] == 1
    stage.serve("w", TOOLS)
    stage.reply(calls(stage)[-1], DONE)
    assert len(stage.answers(1)) == 1


# --- law 6: rewritten ids and progress --------------------------------------------------------------


def test_progress_keeps_the_clients_token_and_never_goes_back_across_a_replay() -> None:
    stage = serving()
    stage.call(1, "get", progressToken=0)
    stage.says("w", 1, progress(calls(stage)[0], 5))
    stage.lose("w")
    stage.serve("w", TOOLS)
    for value in (1, 5, 6):
        stage.says("w", 2, progress(calls(stage)[1], value))
    stage.says("w", 2, progress(calls(stage)[0], 9))  # the token of the lost attempt
    stage.reply(calls(stage)[1], DONE)
    stage.says("w", 2, progress(calls(stage)[1], 10))  # after the answer
    heard = [m["params"] for m in stage.heard("notifications/progress")]
    assert heard == [{"progressToken": 0, "progress": 5}, {"progressToken": 0, "progress": 6}]


def progress(of: Sent, value: float) -> dict[str, Any]:
    params = {"progressToken": of.params["_meta"]["progressToken"], "progress": value}
    return {"method": "notifications/progress", "params": params}


def test_no_child_id_is_ever_used_twice() -> None:
    stage = serving()
    for number in range(5):
        stage.call(number, "get", {"path": str(number)})
    stage.lose("w")
    stage.serve("w", TOOLS)
    ids = [s.id for s in stage.sent if "id" in s.message and "method" in s.message]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)


# --- law 9: cancellation ----------------------------------------------------------------------------


def test_a_cancel_removes_queued_work_and_tells_running_work_and_is_never_answered() -> None:
    stage = serving(Limits(in_flight=1))
    stage.call(1, "get", {"n": 1})
    stage.call(2, "get", {"n": 2})
    stage.cancel(2)
    stage.cancel(1)
    (told,) = stage.got("w", "notifications/cancelled")
    assert told.params["requestId"] == calls(stage)[0].id
    stage.reply(calls(stage)[0], DONE)
    assert stage.answers(1) == stage.answers(2) == []
    assert names(stage) == ["1"]
    assert stage.stopped == []


def test_cancelling_a_held_call_frees_what_waited_for_it() -> None:
    stage = serving()
    stage.call(1, "put", {"n": 1, "path": "a"})
    stage.lose("w")
    stage.call(2, "put", {"n": 2, "path": "a"})
    stage.serve("w", TOOLS)
    stage.cancel(1)
    assert names(stage) == ["1", "2"]


# --- law 10: deadlines ------------------------------------------------------------------------------


def test_a_slow_call_of_a_live_server_ends_alone() -> None:
    stage = serving()
    stage.call(1, "once")
    stage.wait(60.0)
    (ping,) = stage.got("w", "ping")
    stage.reply(ping, {})
    error = stage.answer(1)["error"]
    assert (error["code"], error["data"]["outcome"]) == (-31099, "unknown")
    assert stage.got("w", "notifications/cancelled")
    assert stage.stopped == []


def test_a_server_that_does_not_answer_a_ping_is_replaced_and_its_work_goes_by_class() -> None:
    stage = serving()
    stage.call(1, "once", {"n": 1})
    stage.call(2, "get", {"n": 2})
    stage.wait(65.0)
    assert stage.stopped == [("w", 1)]
    assert stage.answer(1)["error"]["code"] == -31099
    stage.serve("w", TOOLS)
    assert names(stage) == ["1", "2", "2"]


def test_an_absent_effect_of_a_call_that_may_still_run_is_not_redone() -> None:
    stage = serving()
    stage.call(1, "put", {"path": "a"})
    stage.wait(60.0)
    stage.reply(stage.got("w", "ping")[0], {})
    stage.reply(stage.got("w", "perdure/probe")[0], {"status": "absent"})
    assert stage.answer(1)["error"]["code"] == -31099
    assert len(calls(stage)) == 1


def test_waiting_for_a_server_has_a_deadline_that_other_events_do_not_move() -> None:
    stage = Stage(MountSpec("w", builtin=True, call_s=20.0, startup_s=1000.0))
    stage.initialize()
    stage.call(1, "get")
    stage.wait(15.0)
    stage.request("p", "ping")
    stage.wait(5.0)
    error = stage.answer(1)["error"]
    assert (error["code"], error["data"]["outcome"], error["data"]["attempts"]) == (-31099, "not_started", 0)


def test_a_blocked_call_keeps_its_deadline_however_often_the_queue_is_looked_at() -> None:
    stage = serving(Limits(in_flight=1))
    stage.call(1, "get", {"n": 1})
    stage.call(2, "get", {"n": 2})
    first = stage.kernel.state.calls[stage.kernel.state.ids[2]].deadline
    stage.now = 30.0
    stage.request("p", "ping")
    assert stage.kernel.state.calls[stage.kernel.state.ids[2]].deadline == first


def test_a_call_before_the_first_catalog_waits_for_the_worker_instead_of_being_unknown() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.call(1, "put", {"path": "a"})
    stage.serve("w", TOOLS)
    assert isinstance(stage.kernel.state.calls[stage.kernel.state.ids[1]].replay, ProbeRequired)
    assert len(calls(stage)) == 1
    stage.call(2, "no_such_tool")
    assert stage.answer(2)["error"]["code"] == -32602


# --- law 17: what cannot be read --------------------------------------------------------------------


def test_an_answer_that_cannot_be_read_ends_its_call_and_nothing_else() -> None:
    stage = serving()
    stage.call(1, "get")
    stage.call(2, "get")
    from perdure.kernel.events import ChildFrame, ChildNoise

    first, second = calls(stage)
    stage.feed(ChildFrame("w", 1, b'{"jsonrpc":"2.0","id":%d,"result":{"a":' % first.id))
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":"' % second.id
    stage.feed(ChildNoise("w", 1, 1, oversize=True, head=head, tail=b'"}}'))
    assert stage.answer(1)["error"]["data"]["code"] == "unreadable_answer"
    assert stage.answer(2)["error"]["data"]["code"] == "answer_too_large"
    stage.feed(ChildNoise("w", 1, 3))
    assert stage.stopped == []
    assert stage.kernel.state.metrics.quarantined == {
        "child_malformed": 1,
        "child_oversize": 1,
        "child_noise": 3,
    }


def test_a_result_with_a_duplicate_member_is_an_honest_error_where_it_would_have_to_be_rewritten() -> None:
    from perdure.kernel.events import ChildFrame

    stage = serving()
    stage.call(1, "get", modern=True)
    stage.feed(ChildFrame("w", 1, b'{"jsonrpc":"2.0","id":%d,"result":{"a":1,"a":2}}' % calls(stage)[0].id))
    assert stage.answer(1)["error"]["data"]["code"] == "unreadable_answer"


def test_a_deeply_nested_frame_does_not_end_the_host() -> None:
    stage = serving()
    deep = b"[" * 100_000 + b"]" * 100_000
    for params in (b'{"_meta":{"progressToken":%s}}' % deep, b'{"name":%s}' % deep):
        stage.feed(ClientFrame(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}' % params))
    stage.request("p", "ping")
    assert stage.answer("p")["result"] == {}


def test_unknown_members_and_params_pass_through_untouched() -> None:
    spec = MountSpec("m")
    stage = Stage(spec, wrapped=True)
    stage.feed(
        ClientFrame(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "x/y", "params": {}, "z": 1}))
    )
    stage.serve("m", [])
    (sent,) = stage.got("m", "x/y")
    assert sent.message["z"] == 1
    assert sent.params == {}
