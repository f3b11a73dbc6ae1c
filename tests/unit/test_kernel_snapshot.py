"""The snapshot of a session: taken up exactly, or refused whole (law 15)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.kernel.stage import Stage, tool
from perdure.kernel.core import Kernel
from perdure.kernel.state import (
    Answered,
    Held,
    InFlight,
    Modern,
    Overdue,
    Parked,
    Probing,
    Queued,
    ReadKeys,
    Ready,
)
from perdure.protocol.mounts import MountSpec
from perdure.protocol.replay import ProbeRequired

WORKER = MountSpec("w", builtin=True)
TOOLS = [tool("get", "convergent"), tool("put", "probe"), tool("once", "never")]
PREVIOUS = Path(__file__).parents[1] / "fixtures" / "previous_version"
DONE = {"content": [{"type": "text", "text": "done"}]}


def busy() -> Stage:
    """One call that was replayed, one that waits to be, one that was never sent."""
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", TOOLS)
    stage.call(21, "get", {"n": 21})
    stage.lose("w")
    stage.call("q", "once", {"n": "q"})
    return stage


def test_a_restored_session_goes_on_where_it_was() -> None:
    stage = busy().restored()
    stage.serve("w", TOOLS)
    assert [s.params["arguments"]["n"] for s in stage.got("w", "tools/call")] == [21, 21, "q"]
    assert stage.kernel.state.calls[stage.kernel.state.ids[21]].replays == 1
    assert stage.kernel.state.metrics.totals.replays == 1
    stage.restored()
    stage.lose("w")
    assert stage.answer(21)["error"]["code"] == -31095
    assert stage.answer("q")["error"]["code"] == -31094


def test_a_restored_session_keeps_its_phase_its_counters_and_its_sequence() -> None:
    stage = busy()
    before = stage.ask_host("health", detail="full")
    sequence = stage.kernel.state.seq
    stage.restored()
    assert stage.kernel.state.seq == sequence
    after = stage.ask_host("health", detail="full")
    for fact in ("state", "protocol", "generation", "restart_count", "pending", "mounts"):
        assert after[fact] == before[fact]
    assert stage.kernel.state.session.live


def test_a_probe_a_question_and_a_stream_survive_the_snapshot() -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.serve("w", TOOLS)
    stage.call(1, "put")
    stage.lose("w")
    stage.serve("w", TOOLS)
    stage.says("w", 2, {"id": 8, "method": "elicitation/create", "params": {}})
    stage.request("s", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, modern=True)
    stage.restored()
    stage.reply(stage.got("w", "perdure/probe")[0], {"status": "done", "result": DONE})
    assert stage.answer(1)["result"]["content"] == DONE["content"]
    stage.send({"id": stage.heard("elicitation/create")[0]["id"], "result": {}})
    assert [s for s in stage.sent if s.message.get("id") == 8 and "result" in s.message]
    assert [listen.public_id for listen in stage.kernel.state.session.listens] == ["s"]


@pytest.mark.parametrize("wide", [1 << 64, -(1 << 63) - 1, 10**30])
def test_ids_and_tokens_beyond_64_bits_survive_the_snapshot(wide: int) -> None:
    stage = Stage(WORKER)
    stage.initialize()
    stage.request(wide - 1, "subscriptions/listen", {"notifications": {}}, modern=True)
    stage.request(wide - 2, "tools/list")
    stage.serve("w", TOOLS)
    stage.call(wide, "get", progressToken=wide)
    stage.says("w", 1, {"id": wide, "method": "elicitation/create", "params": {}})
    stage.restored()
    call = stage.got("w", "tools/call")[0]
    stage.says(
        "w", 1, {"method": "notifications/progress", "params": {"progressToken": call.id, "progress": 1}}
    )
    assert stage.heard("notifications/progress")[0]["params"]["progressToken"] == wide
    stage.send({"id": stage.heard("elicitation/create")[0]["id"], "result": {}})
    assert stage.sent[-1].id == wide
    stage.reply(call, DONE)
    assert stage.answer(wide)["result"] == DONE
    assert [listen.public_id for listen in stage.kernel.state.session.listens] == [wide - 1]


def a_version(capsule: dict[str, Any]) -> None:
    capsule["version"] = 999


def an_id_that_is_not_its_calls(capsule: dict[str, Any]) -> None:
    capsule["state"]["ids"] = {7: 1}


def an_attempt_over_the_limit(capsule: dict[str, Any]) -> None:
    for call in capsule["state"]["calls"].values():
        call["replays"] = call["attempts"] = 99


def a_session_in_no_phase(capsule: dict[str, Any]) -> None:
    capsule["state"]["session"]["phase"] = {"type": "Live"}


def a_reversed_queue(capsule: dict[str, Any]) -> None:
    capsule["state"]["mounts"]["w"]["queue"].reverse()


def a_call_in_flight_nowhere(capsule: dict[str, Any]) -> None:
    first = next(iter(capsule["state"]["calls"].values()))
    first["state"] = {"type": "InFlight", "generation": 77, "child_id": 1}


def another_mount(capsule: dict[str, Any]) -> None:
    capsule["state"]["mounts"]["x"] = capsule["state"]["mounts"].pop("w")


def a_route_to_nobody(capsule: dict[str, Any]) -> None:
    capsule["state"]["routes"] = {
        1: {"mount": "w", "generation": 2, "purpose": {"type": "ForCall", "seq": 999}}
    }


def a_generation_from_the_future(capsule: dict[str, Any]) -> None:
    capsule["state"]["mounts"]["w"]["generation"] = 0


@pytest.mark.parametrize(
    "spoil",
    [
        a_version,
        an_id_that_is_not_its_calls,
        an_attempt_over_the_limit,
        a_session_in_no_phase,
        a_reversed_queue,
        a_call_in_flight_nowhere,
        another_mount,
        a_route_to_nobody,
        a_generation_from_the_future,
    ],
    ids=lambda f: f.__name__,
)
def test_a_snapshot_that_contradicts_itself_is_refused_whole(spoil: Callable[[dict[str, Any]], None]) -> None:
    stage = busy()
    capsule = msgspec.msgpack.decode(stage.kernel.snapshot(), strict=False)
    spoil(capsule)
    successor = Kernel({"w": WORKER}, session_id="other")
    before = successor.snapshot()
    with pytest.raises(ValueError):
        successor.restore(msgspec.msgpack.encode(capsule))
    assert successor.snapshot() == before


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x81", msgspec.msgpack.encode({"version": 1})])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Kernel({"w": WORKER}, session_id="s").restore(data)


def previous(name: str, *specs: MountSpec) -> Stage:
    """A stage whose kernel took up a snapshot of version 2, which kept data of a call's state in the call."""
    stage = Stage(*specs)
    stage.kernel.restore((PREVIOUS / name).read_bytes())
    stage.now = stage.kernel.now
    return stage


def test_calls_of_a_snapshot_of_the_version_before_go_on_in_their_states() -> None:
    charge = ProbeRequired("find", {"tag": "/tag"})
    stage = previous(
        "kernel_2_handshake.snapshot", WORKER, MountSpec("m", prefix="m__", replay={"charge": charge})
    )
    calls = {call.public_id: call for call in stage.kernel.state.calls.values()}
    assert {identity: type(call.state) for identity, call in calls.items()} == {
        "held": Held,
        "queued-m": Queued,
        "probing": Probing,
        "waits": Queued,
        "overdue": Overdue,
        "in flight": InFlight,
    }
    assert stage.kernel.state.session.phase == Ready("2025-11-25")
    assert calls["probing"].conflicts == calls["waits"].conflicts == ReadKeys(("f",))
    probing = calls["probing"].state
    assert isinstance(probing, Probing)
    stage.says("w", 2, {"id": probing.child_id, "result": {"status": "absent"}})
    assert [s.params["arguments"] for s in stage.got("w", "tools/call")] == [{"path": "f"}, {"path": "f"}]
    stage.wait(10.0)
    assert stage.answer("overdue")["error"]["data"]["outcome"] == "unknown"


def test_questions_of_a_snapshot_of_the_version_before_go_on() -> None:
    stage = previous("kernel_2_modern.snapshot", WORKER)
    answered, parked = (call.state for call in stage.kernel.state.calls.values())
    assert isinstance(stage.kernel.state.session.phase, Modern)
    assert isinstance(answered, Answered)
    assert isinstance(parked, Parked)
    params = {"name": "once", "arguments": {}, "requestState": answered.ticket}
    stage.request("back", "tools/call", params, modern=True)
    assert stage.answer("back")["result"]["content"][0]["text"] == "kept"
