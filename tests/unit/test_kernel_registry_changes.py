"""Mounts that come, go and change while a session runs, and tools that are not what they were."""

from __future__ import annotations

import msgspec

from harness.kernel.stage import Stage, tool
from perdure.kernel.core import Kernel
from perdure.kernel.events import Approved, ChildLost, Order, Remount, Spawn, Stop
from perdure.kernel.state import KnownTools, Serving, Starting, Stopped
from perdure.protocol.faults import UNAVAILABLE, Fault
from perdure.protocol.mounts import MountSpec

WORKER = MountSpec("w", builtin=True)
MANAGED = MountSpec("m", ("server",), "m__", managed=True, mark="1")
DONE = {"content": [{"type": "text", "text": "done"}]}
TOOLS = [tool("get"), tool("put")]


def serving(spec: MountSpec = MANAGED, **options: object) -> Stage:
    stage = Stage(WORKER, spec, **options)
    stage.initialize()
    stage.serve("w", [])
    stage.serve("m", TOOLS)
    return stage


def listed(stage: Stage, identity: int) -> list[str]:
    stage.request(identity, "tools/list")
    return [one["name"] for one in stage.answer(identity)["result"]["tools"] if one["name"].startswith("m__")]


def test_a_new_mount_is_started_and_its_tools_are_announced() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", [])
    effects = stage.feed(Remount({"m": MANAGED}))
    assert [effect.mount for effect in effects if isinstance(effect, Spawn)] == ["m"]
    stage.serve("m", TOOLS)
    assert stage.heard("notifications/tools/list_changed")
    assert listed(stage, 1) == ["m__get", "m__put"]


def test_a_mount_that_is_gone_answers_its_calls_and_leaves_nothing() -> None:
    stage = serving()
    stage.call(1, "m__put")
    stage.call(2, "m__put")
    stage.feed(Remount({}))
    assert stage.answer(1)["error"]["data"]["outcome"] == "unknown"
    assert "error" in stage.answer(2)
    assert "m" not in stage.kernel.state.mounts
    assert not stage.kernel.state.calls
    assert listed(stage, 3) == []
    stage.call(4, "m__put")
    assert stage.answer(4)["error"]["code"] == -32602
    Kernel(stage.kernel.specs, session_id="s").restore(stage.kernel.snapshot())


UNTRUSTED = MountSpec("m", (), "m__", managed=True, untrusted="m waits: perdure trust")


def spawned(effects: list[object]) -> list[str]:
    return [effect.mount for effect in effects if isinstance(effect, Spawn)]


def test_a_mount_that_is_not_trusted_is_never_started_and_says_so_to_its_calls() -> None:
    stage = Stage(WORKER, UNTRUSTED)
    stage.initialize()
    stage.serve("w", [])
    for action in ("restart", "enable"):
        assert spawned(list(stage.feed(Order("m", action)))) == []
    assert listed(stage, 1) == []
    stage.call(2, "m__get")
    error = stage.answer(2)["error"]
    assert (error["code"], error["message"]) == (UNAVAILABLE, "get did not run. m waits: perdure trust")
    assert spawned(list(stage.feed(Remount({"m": MANAGED})))) == ["m"]
    stage.serve("m", TOOLS)
    assert listed(stage, 3) == ["m__get", "m__put"]


def test_a_mount_that_is_no_longer_trusted_is_stopped_and_its_tools_leave_the_list() -> None:
    stage = serving()
    stage.call(1, "m__put")
    effects = list(stage.feed(Remount({"m": UNTRUSTED})))
    assert any(isinstance(effect, Stop) for effect in effects)
    assert spawned(effects) == []
    assert stage.answer(1)["error"]["data"]["outcome"] == "unknown"
    assert listed(stage, 2) == []
    stage.call(3, "m__get")
    assert stage.answer(3)["error"]["code"] == UNAVAILABLE


def test_a_worker_whose_settings_are_trusted_now_is_rolled_over() -> None:
    stage = serving()
    fresh = msgspec.structs.replace(WORKER, mark="trusted")
    assert spawned(list(stage.feed(Remount({"m": MANAGED, "w": fresh})))) == ["w"]


def test_a_mount_that_is_started_differently_is_rolled_over() -> None:
    stage = serving()
    stage.call(1, "m__get")
    stage.feed(Remount({"m": msgspec.structs.replace(MANAGED, mark="2")}))
    assert stage.kernel.state.mounts["m"].phase == Serving(1)
    stage.serve("m", TOOLS)
    assert stage.kernel.state.mounts["m"].phase == Serving(2)
    stage.reply(stage.got("m", "tools/call", 1)[-1], DONE)
    assert stage.answer(1)["result"] == DONE


def test_a_change_of_rules_touches_no_process() -> None:
    stage = serving()
    effects = stage.feed(Remount({"m": msgspec.structs.replace(MANAGED, allow=("get",), call_s=1.0)}))
    assert not [effect for effect in effects if isinstance(effect, Spawn)]
    assert listed(stage, 1) == ["m__get"]


def test_the_mounts_of_options_are_not_the_registrys_to_remove() -> None:
    stage = Stage(WORKER, MountSpec("own", ("x",), "own__"))
    stage.initialize()
    stage.feed(Remount({}))
    assert set(stage.kernel.state.mounts) == {"w", "own"}


def test_what_cannot_be_started_as_it_stands_is_not_tried_again_until_it_changes() -> None:
    stage = Stage(WORKER, MANAGED)
    stage.initialize()
    refused = Fault("process", "command_not_allowed", 1, "m: the command server is not allowed")
    stage.feed(ChildLost("m", 1, refused))
    mount = stage.kernel.state.mounts["m"]
    assert mount.phase == Stopped()
    stage.call(1, "m__get")
    assert stage.answer(1)["error"]["data"]["detail"] == refused.detail
    stage.feed(Remount({"m": msgspec.structs.replace(MANAGED, mark="2")}))
    assert isinstance(mount.phase, Starting)


def test_a_server_that_must_not_be_restarted_stays_down_until_somebody_asks() -> None:
    stage = serving(msgspec.structs.replace(MANAGED, restart="never"))
    stage.lose("m")
    assert stage.kernel.state.mounts["m"].phase == Stopped()
    stage.ask_host("mounts", action="restart", name="m")
    assert isinstance(stage.kernel.state.mounts["m"].phase, Starting)


# --- tools that are not what they were --------------------------------------------------------------------------

PINNED = msgspec.structs.replace(MANAGED, pin=True)


def restarted(stage: Stage, tools: list[dict[str, object]]) -> None:
    stage.lose("m")
    stage.serve("m", tools)


def test_the_first_tools_are_accepted_and_a_changed_one_is_held_back() -> None:
    stage = serving(PINNED)
    mount = stage.kernel.state.mounts["m"]
    assert set(mount.known or {}) == {"get", "put"}
    restarted(stage, [tool("get"), {**tool("put"), "description": "other"}])
    assert set(mount.held) == {"put"}
    assert listed(stage, 1) == ["m__get"]
    stage.call(2, "m__put")
    assert stage.answer(2)["error"]["code"] == -32602
    stage.feed(Approved("m", dict(mount.held)))
    assert listed(stage, 3) == ["m__get", "m__put"]


def test_an_approval_of_something_else_frees_nothing() -> None:
    stage = serving(PINNED)
    restarted(stage, [tool("get"), {**tool("put"), "description": "other"}])
    stage.feed(Approved("m", {"put": "another hash"}))
    assert listed(stage, 1) == ["m__get"]


def test_a_tool_that_left_cannot_come_back_as_another_one() -> None:
    stage = serving(PINNED)
    restarted(stage, [tool("get")])
    restarted(stage, [tool("get"), {**tool("put"), "description": "other"}])
    assert listed(stage, 1) == ["m__get"]


def test_what_was_held_back_stays_so_in_the_next_session() -> None:
    stage = serving(PINNED)
    restarted(stage, [tool("get"), {**tool("put"), "description": "other"}])
    mount = stage.kernel.state.mounts["m"]
    kept = KnownTools(mount.known, mount.held)
    assert mount.catalog is not None
    fresh = Stage(WORKER, PINNED, tools={"m": kept}, catalogs={"m": mount.catalog, "w": mount.catalog})
    fresh.initialize()
    assert listed(fresh, 1) == ["m__get"]


def test_a_change_without_a_pin_is_shown_and_offered() -> None:
    stage = serving()
    restarted(stage, [tool("get"), {**tool("put"), "description": "other"}])
    assert listed(stage, 1) == ["m__get", "m__put"]
    assert stage.ask_host("health", detail="full")["mounts"][1]["changed"] == ["put"]
