"""Coming back: restart budget, backoff, circuit, operations by hand, health and telemetry (laws 11, 16)."""

from __future__ import annotations

import pytest

from harness.kernel.stage import Stage, tool
from perdure.kernel.events import ChildNoise, Throttle
from perdure.kernel.metrics import failure_code
from perdure.kernel.state import Disabled, Idle, Open, Serving, Starting, Waiting
from perdure.protocol.mounts import Limits, MountSpec

WORKER = MountSpec("w", builtin=True, startup_s=10.0)
TOOLS = [tool("get", "convergent"), tool("once", "never"), tool("put", "probe")]
DONE = {"content": [{"type": "text", "text": "done"}]}


def serving(limits: Limits | None = None) -> Stage:
    stage = Stage(WORKER, limits=limits)
    stage.initialize()
    stage.serve("w", TOOLS)
    return stage


# --- law 11 ---------------------------------------------------------------------------------------------


def test_a_productive_server_that_dies_is_started_again_at_once() -> None:
    stage = serving()
    for number in range(20):  # once every 1.5 s for half a minute
        stage.call(number, "get")
        stage.reply(stage.got("w", "tools/call")[-1], DONE)
        stage.wait(1.5)
        stage.lose("w")
        assert isinstance(stage.kernel.state.mounts["w"].phase, Starting)
        stage.serve("w", TOOLS)
    assert all("result" in stage.answer(number) for number in range(20))


def test_a_server_that_keeps_failing_is_started_ever_later_until_the_circuit_opens() -> None:
    stage = serving(Limits(unproductive_starts=5, backoff_s=0.1, circuit_s=5.0))
    waits = []
    while not isinstance(stage.kernel.state.mounts["w"].phase, Open):
        stage.lose("w")
        phase = stage.kernel.state.mounts["w"].phase
        if isinstance(phase, Waiting):
            waits.append(phase.until - stage.now)
            stage.tick()
    assert len(waits) == 3
    for number, wait in enumerate(waits):
        assert 0.05 <= wait / 2**number <= 0.1
    assert stage.ask_host("health")["state"] == "degraded"
    assert stage.ask_host("health")["mounts"][0]["circuit"] == "open"
    # while it is open, a call is told at once
    stage.call(1, "get")
    error = stage.answer(1)["error"]
    assert (error["code"], error["data"]["outcome"], error["data"]["retry"]) == (
        -31098,
        "not_started",
        "later",
    )


def test_a_half_open_circuit_closes_with_success_and_opens_longer_with_failure() -> None:
    stage = serving(Limits(unproductive_starts=1, circuit_s=5.0))
    stage.lose("w")
    opened = stage.kernel.state.mounts["w"].phase
    assert opened == Open(5.0)
    stage.tick()
    assert stage.ask_host("health")["mounts"][0]["circuit"] == "half_open"
    stage.lose("w")
    assert stage.kernel.state.mounts["w"].phase == Open(15.0)
    stage.tick()
    stage.serve("w", TOOLS)
    stage.call(1, "get")
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.ask_host("health")["mounts"][0]["circuit"] == "closed"
    stage.lose("w")
    assert (
        not isinstance(stage.kernel.state.mounts["w"].phase, Open)
        or stage.kernel.state.mounts["w"].opened == 1
    )


def test_when_the_circuit_opens_everyone_who_waits_is_told() -> None:
    stage = serving(Limits(unproductive_starts=2))
    stage.call(1, "get")
    stage.call(2, "put")
    stage.lose("w")
    stage.call(3, "once")
    stage.lose("w")
    assert stage.answer(1)["error"]["data"]["outcome"] == "unknown"
    assert stage.answer(2)["error"]["data"]["retry"] == "after_probe"
    assert stage.answer(3)["error"]["data"]["outcome"] == "not_started"


def test_a_handshake_that_does_not_finish_in_time_is_a_failed_start() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.wait(10.0)
    assert stage.stopped == [("w", 1)]
    assert stage.kernel.state.mounts["w"].last_fault is not None
    assert stage.kernel.state.mounts["w"].last_fault.code == "startup_timeout"
    assert stage.spawned[-1] == ("w", 2)


def test_a_generation_that_cannot_say_what_it_offers_does_not_serve() -> None:
    stage = serving()
    stage.lose("w")
    from perdure.kernel.events import ChildStarted

    stage.feed(ChildStarted("w", 2, 1))
    opened = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "w"}}
    stage.reply(stage.got("w", "initialize", 2)[0], opened)
    stage.refuse(stage.got("w", "tools/list", 2)[0])
    assert ("w", 2) in stage.stopped
    stage.request("l", "tools/list")
    assert "get" in [t["name"] for t in stage.answer("l")["result"]["tools"]]


def test_a_server_that_talks_too_much_is_read_less_often() -> None:
    stage = serving(Limits(unsolicited_per_window=5, window_s=0.5))
    assert stage.feed(ChildNoise("w", 1, 6))[-1] == Throttle("w", 1, 0.5)


# --- by hand ------------------------------------------------------------------------------------------------


def test_a_restart_by_hand_replaces_the_process_and_treats_work_by_class() -> None:
    stage = serving()
    stage.call(1, "get", {"n": 1})
    stage.call(2, "once", {"n": 2})
    assert stage.ask_host("mounts", action="restart", name="w")["ok"] is True
    assert stage.stopped == [("w", 1)]
    assert stage.answer(2)["error"]["code"] == -31094
    stage.serve("w", TOOLS)
    assert [s.params["arguments"]["n"] for s in stage.got("w", "tools/call")] == [1, 2, 1]


def test_a_disabled_mount_is_hidden_refused_and_comes_back() -> None:
    stage = serving()
    stage.ask_host("mounts", action="disable", name="w")
    assert isinstance(stage.kernel.state.mounts["w"].phase, Disabled)
    assert stage.heard("notifications/tools/list_changed")
    stage.request("l", "tools/list")
    assert "get" not in [t["name"] for t in stage.answer("l")["result"]["tools"]]
    stage.call(1, "get")
    assert stage.answer(1)["error"]["data"]["code"] == "disabled"
    stage.ask_host("mounts", action="enable", name="w")
    stage.serve("w", TOOLS)
    stage.call(2, "get")
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.answer(2)["result"] == DONE


def test_an_unknown_mount_is_an_envelope_not_a_crash() -> None:
    stage = serving()
    stage.call(1, "mounts", {"action": "restart", "name": "nope"})
    result = stage.answer(1)["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["error"] == "not_found"


def test_a_lazy_server_starts_with_its_first_call_and_leaves_when_idle() -> None:
    lazy = MountSpec("m", prefix="m__", start="lazy", idle_s=60.0)
    from perdure.kernel.state import ChildCatalog

    stage = Stage(lazy, catalogs={"m": ChildCatalog(b'{"tools":{}}', tools=[b'{"name":"look"}'])})
    stage.initialize()
    assert stage.spawned == []
    stage.call(1, "m__look")
    stage.serve("m", [tool("look")])
    stage.reply(stage.got("m", "tools/call")[0], DONE)
    stage.wait(61.0)
    assert stage.stopped == [("m", 1)]
    assert isinstance(stage.kernel.state.mounts["m"].phase, Idle)
    stage.call(2, "m__look")
    assert stage.spawned[-1] == ("m", 2)


# --- health and telemetry (A4 health rows) -----------------------------------------------------------------------


def test_lifecycle_and_handshake_are_separate_facts_and_ready_is_never_false() -> None:
    stage = Stage(WORKER)
    assert stage.ask_host("health")["state"] == "starting"
    stage.initialize()
    assert stage.ask_host("health")["mounts"][0]["state"] == "starting"
    stage.serve("w", TOOLS)
    assert stage.ask_host("health")["state"] == "ready"
    assert isinstance(stage.kernel.state.mounts["w"].phase, Serving)
    stage.lose("w")
    health = stage.ask_host("health")
    assert (health["state"], health["restart_count"], health["consecutive_failures"]) == ("recovering", 1, 1)
    assert health["last_fault"]["code"] == "exited"


def test_success_resets_the_consecutive_failures_and_a_fault_is_not_an_error() -> None:
    stage = serving()
    stage.call(1, "get")
    stage.lose("w")
    totals = stage.kernel.state.metrics.totals
    assert (totals.recovery_faults, totals.errors) == (1, 0)
    stage.serve("w", TOOLS)
    stage.reply(stage.got("w", "tools/call")[-1], DONE)
    assert stage.kernel.state.metrics.consecutive_failures == 0
    assert (totals.replays, totals.recovery_faults) == (1, 1)


def test_errors_fall_into_their_own_buckets() -> None:
    stage = serving()
    stage.call(1, "get")
    stage.refuse(stage.got("w", "tools/call")[-1])  # the server's own error
    stage.call(2, "once")
    stage.lose("w")  # an error of recovery
    stage.request(3, "tools/list", {"cursor": "x"})  # an error of the host
    totals = stage.ask_host("telemetry")["totals"]
    assert totals["errors"] == 3
    assert (totals["response_errors"], totals["recovery_errors"]) == (1, 1)


def test_methods_are_listed_in_order_and_totals_survive_a_restart_of_the_worker() -> None:
    stage = serving()
    stage.request(1, "zeta/x", {"_meta": {"perdure/mount": "w"}})
    stage.request(2, "alpha/x", {"_meta": {"perdure/mount": "w"}})
    before = stage.ask_host("telemetry")["totals"]["requests"]
    stage.lose("w")
    stage.serve("w", TOOLS)
    found = stage.ask_host("telemetry")
    listed = [m["method"] for m in found["methods"]]
    assert listed == sorted(listed)
    assert found["totals"]["requests"] == before + 1


def test_a_clients_inventions_do_not_grow_the_telemetry_without_end() -> None:
    stage = serving()
    for number in range(200):
        stage.request(number, f"made-up/{number}")
    assert len(stage.kernel.state.metrics.methods) <= 65


def test_what_the_owner_asks_for_is_no_fault() -> None:
    # given a server whose last fault is known
    stage = serving()
    stage.lose("w")
    stage.serve("w", TOOLS)
    faults = stage.kernel.state.metrics.totals.recovery_faults
    for action in ("restart", "disable", "enable"):
        # when its owner restarts, disables and enables it
        stage.ask_host("mounts", action=action, name="w")
        if action != "disable":
            stage.serve("w", TOOLS)
    # then the fault that it had is still its last one, and no other was counted
    health = stage.ask_host("health")
    assert health["mounts"][0]["last_fault"]["code"] == "exited"
    assert stage.kernel.state.metrics.totals.recovery_faults == faults
    assert health["consecutive_failures"] == 1


def test_calls_are_counted_by_tool_and_the_newest_are_kept() -> None:
    stage = serving()
    for number in range(60):
        stage.call(number, "get")
        stage.reply(stage.got("w", "tools/call")[-1], DONE)
    stage.call("failed", "get")
    failed = {"content": [{"type": "text", "text": "No.\n[conflict/later_edit]"}], "isError": True}
    stage.reply(stage.got("w", "tools/call")[-1], failed)
    metrics = stage.kernel.state.metrics
    counters = metrics.tools["get"]
    assert (counters.mount, counters.requests, counters.errors, counters.latency.count) == ("w", 61, 1, 61)
    assert len(metrics.recent) == 50
    assert (metrics.recent[-1].tool, metrics.recent[-1].ending) == ("get", "tool_error")


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (b'{"content":[{"type":"text","text":"No.\\n[blocked/risk]"}],"isError":true}', "blocked/risk"),
        (b'{"structuredContent":{"error":"blocked","context":{"reason":"risk"}}}', "blocked/risk"),
        (b'{"structuredContent":{"status":"conflict"}}', "conflict"),
        (b'{"structuredContent":{"context":7}}', ""),
        (b'{"content":[]}', ""),
    ],
)
def test_the_code_of_a_failure_is_found_in_either_render(result: bytes, code: str) -> None:
    assert failure_code(result) == code
