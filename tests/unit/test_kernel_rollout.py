"""Rollout: a new generation takes over without a client noticing (law 12)."""

from __future__ import annotations

from harness.kernel.stage import Stage, tool
from perdure.kernel.events import Reload
from perdure.kernel.state import Announced, Draining, Preparing, Serving, Settled
from perdure.protocol.mounts import Limits, MountSpec

WORKER = MountSpec("w", builtin=True, startup_s=10.0)
OLD = [
    tool("get", "convergent", conflict=["/path"]),
    tool("put", "probe", conflict=["/path"]),
    tool("once", "never"),
]
NEW = [*OLD, tool("extra", "convergent")]
DONE = {"content": [{"type": "text", "text": "done"}]}


def rolling(limits: Limits | None = None) -> Stage:
    stage = Stage(WORKER, limits=limits)
    stage.initialize()
    stage.serve("w", OLD)
    stage.call(1, "once", {"n": 1})
    stage.feed(Reload())
    assert isinstance(stage.kernel.state.mounts["w"].rollout, Preparing)
    return stage


def test_the_same_catalog_sets_the_fence_at_once() -> None:
    stage = rolling()
    stage.serve("w", OLD)
    assert stage.kernel.state.mounts["w"].phase == Serving(2)
    assert stage.heard("notifications/tools/list_changed") == []
    # work from before the fence stays where it is; work after it goes to the successor
    stage.call(2, "once", {"n": 2})
    assert [(s.generation, s.params["arguments"]["n"]) for s in stage.got("w", "tools/call")] == [
        (1, 1),
        (2, 2),
    ]
    assert stage.stopped == []
    assert isinstance(stage.kernel.state.mounts["w"].links[1].stage, Draining)
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.answer(1)["result"] == DONE
    assert stage.stopped == [("w", 1)]


def test_a_changed_catalog_is_announced_and_the_clients_refresh_sets_the_fence() -> None:
    stage = rolling()
    stage.serve("w", NEW)
    assert isinstance(stage.kernel.state.mounts["w"].rollout, Announced)
    assert len(stage.heard("notifications/tools/list_changed")) == 1
    stage.call(2, "once", {"n": 2})
    assert stage.got("w", "tools/call")[-1].generation == 1
    stage.request("l", "tools/list")
    assert "extra" in [t["name"] for t in stage.answer("l")["result"]["tools"]]
    stage.call(3, "once", {"n": 3})
    assert stage.got("w", "tools/call")[-1].generation == 2
    assert len(stage.heard("notifications/tools/list_changed")) == 1


def test_a_client_that_does_not_refresh_cannot_hold_an_obsolete_generation() -> None:
    stage = rolling(Limits(refresh_grace_s=2.0))
    stage.serve("w", NEW)
    stage.wait(2.0)
    assert stage.kernel.state.mounts["w"].phase == Serving(2)
    assert isinstance(stage.kernel.state.mounts["w"].rollout, Settled)


def test_any_failure_of_the_candidate_keeps_the_incumbent() -> None:
    stage = rolling()
    stage.lose("w", 2)
    assert stage.kernel.state.mounts["w"].phase == Serving(1)
    assert stage.spawned[-1] == ("w", 2)
    stage.reply(stage.got("w", "tools/call")[0], DONE)
    assert stage.answer(1)["result"] == DONE
    assert stage.ask_host("health")["mounts"][0]["last_fault"]["code"] == "candidate_refused"
    slow = rolling()
    slow.wait(10.0)
    assert slow.stopped == [("w", 2)]
    assert slow.kernel.state.mounts["w"].phase == Serving(1)


def test_a_failure_after_the_announcement_is_announced_too() -> None:
    stage = rolling()
    stage.serve("w", NEW)
    stage.lose("w", 2)
    assert len(stage.heard("notifications/tools/list_changed")) == 2
    stage.request("l", "tools/list")
    assert "extra" not in [t["name"] for t in stage.answer("l")["result"]["tools"]]


def test_a_dead_incumbent_is_replaced_by_the_candidate_under_way() -> None:
    stage = rolling()
    stage.lose("w", 1)
    assert stage.answer(1)["error"]["code"] == -31094
    assert stage.spawned[-1] == ("w", 2)
    stage.serve("w", OLD, generation=2)
    assert stage.kernel.state.mounts["w"].phase == Serving(2)
    announced = rolling()
    announced.serve("w", NEW)
    announced.lose("w", 1)
    assert announced.kernel.state.mounts["w"].phase == Serving(2)


def test_nothing_of_a_candidate_is_heard_before_it_serves() -> None:
    stage = rolling()
    stage.serve("w", NEW)
    before = len(stage.client)
    stage.says("w", 2, {"method": "notifications/message", "params": {"level": "info", "data": "x"}})
    stage.says("w", 2, {"method": "notifications/resources/updated", "params": {"uri": "a:b"}})
    stage.says("w", 2, {"id": 5, "method": "elicitation/create", "params": {}})
    assert stage.client[before:] == []
    stage.request("l", "tools/list")  # the fence: now its question may be asked
    assert len(stage.heard("elicitation/create")) == 1


def test_a_second_reload_replaces_the_candidate_not_the_incumbent() -> None:
    stage = rolling()
    stage.feed(Reload())
    assert stage.stopped == [("w", 2)]
    assert stage.kernel.state.mounts["w"].phase == Serving(1)
    stage.serve("w", OLD, generation=3)
    assert stage.kernel.state.mounts["w"].phase == Serving(3)


def test_a_call_lost_on_the_fenced_generation_is_probed_on_its_successor_at_once() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", OLD)
    stage.call(1, "put", {"n": 1, "path": "a"})
    stage.feed(Reload())
    stage.serve("w", OLD)
    stage.call(2, "put", {"n": 2, "path": "a"})  # the same path: waits for the one that still runs
    assert len(stage.got("w", "tools/call")) == 1
    stage.lose("w", 1)
    (probe,) = stage.got("w", "perdure/probe")
    assert probe.generation == 2
    stage.reply(probe, {"status": "done", "result": DONE})
    assert stage.answer(1)["result"]["_meta"]["perdure/outcome"]["outcome"] == "probed_done"
    assert stage.got("w", "tools/call")[-1].params["arguments"]["n"] == 2


def test_a_call_is_classified_by_the_catalog_that_serves_it() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.call(1, "get", {"n": 1})  # accepted before anything is known
    stage.serve("w", OLD)
    assert stage.kernel.state.calls[stage.kernel.state.ids[1]].replay.__class__.__name__ == "Convergent"


def test_what_a_fenced_generation_still_grants_is_handed_to_its_successor() -> None:
    stage = Stage(MountSpec("m", prefix="m__"))
    stage.initialize()

    def serve() -> None:
        stage.serve("m", [], resources={"subscribe": True})
        for method in ("resources/list", "resources/templates/list"):
            stage.reply(stage.got("m", method)[-1], {"resources": [{"uri": "m://a", "name": "a"}]})

    serve()
    stage.request(1, "resources/subscribe", {"uri": "m://a"})
    stage.feed(Reload())
    serve()
    assert stage.kernel.state.mounts["m"].phase == Serving(2)
    assert [s.generation for s in stage.got("m", "resources/subscribe")] == [1]
    stage.reply(stage.got("m", "resources/subscribe")[0], {})
    assert stage.answer(1)["result"] == {}
    assert [s.generation for s in stage.got("m", "resources/subscribe")] == [1, 2]


def test_a_lazy_server_does_not_leave_while_it_is_rolled_over() -> None:
    stage = Stage(MountSpec("m", prefix="m__", start="lazy", idle_s=5.0, startup_s=30.0))
    stage.initialize()
    stage.serve("m", OLD)
    stage.feed(Reload())
    stage.wait(10.0)
    assert stage.stopped == []
    stage.serve("m", OLD)
    stage.call(1, "m__once")
    assert [s.generation for s in stage.got("m", "tools/call")] == [2]
    stage.reply(stage.got("m", "tools/call")[0], DONE)
    stage.wait(10.0)
    assert stage.stopped == [("m", 1), ("m", 2)]
