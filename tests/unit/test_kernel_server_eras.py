"""In which era a server is opened: the one it was opened in before, else one and then the other."""

from __future__ import annotations

import pytest

from harness.kernel.stage import Sent, Stage, tool
from perdure.kernel.events import ChildStarted
from perdure.kernel.state import ChildCatalog
from perdure.protocol.eras import LATEST_MODERN, UNSUPPORTED_VERSION, Era
from perdure.protocol.mounts import Limits, MountSpec

SPEC = MountSpec("m", modern_first=True)
ANY = MountSpec("m", startup_s=30.0)
LIMITS = Limits(era_s=5.0)
DISCOVERED = {"supportedVersions": [LATEST_MODERN], "capabilities": {"tools": {}}}
OPENED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m"}}


def started() -> Stage:
    stage = Stage(SPEC, wrapped=True)
    stage.request("d", "server/discover", modern=True)
    begin(stage)
    return stage


def initialized() -> Stage:
    """A server of unknown era that got `initialize`."""
    stage = Stage(ANY, limits=LIMITS)
    stage.initialize()
    begin(stage)
    return stage


def begin(stage: Stage) -> None:
    newest = stage.newest("m")
    stage.feed(ChildStarted("m", newest, 4000 + newest))


def era_of(stage: Stage) -> Era:
    catalog = stage.kernel.state.mounts["m"].catalog
    assert catalog is not None
    return catalog.era


def opening(stage: Stage) -> list[str]:
    newest = stage.newest("m")
    names = [sent.message["method"] for sent in stage.sent if sent.generation == newest]
    return [name for name in names if name in ("initialize", "server/discover")]


def discover(stage: Stage) -> Sent:
    return stage.got("m", "server/discover", stage.newest("m"))[-1]


def test_a_server_of_both_eras_is_opened_in_that_of_2026_and_its_questions_pass_untouched() -> None:
    stage = started()
    stage.reply(discover(stage), DISCOVERED)
    stage.list_tools("m", [tool("look")])
    assert opening(stage) == ["server/discover"]
    assert era_of(stage) == "modern"
    stage.call(1, "look", modern=True)
    asked = {"resultType": "input_required", "inputRequests": {"who": {"method": "roots/list"}}}
    stage.reply(stage.got("m", "tools/call")[-1], asked)
    assert stage.answer(1)["result"] == asked


def test_a_server_that_refuses_is_opened_by_the_handshake_on_the_same_process() -> None:
    stage = started()
    stage.refuse(discover(stage), -32601)
    stage.reply(stage.got("m", "initialize")[-1], OPENED)
    stage.list_tools("m", [tool("look")])
    assert stage.spawned == [("m", 1)]
    assert era_of(stage) == "handshake"
    stage.call(1, "look", modern=True)
    stage.reply(stage.got("m", "tools/call")[-1], {"content": []})
    assert stage.answer(1)["result"]["resultType"] == "complete"


def test_a_server_that_refuses_both_eras_is_not_asked_in_circles() -> None:
    stage = started()
    stage.refuse(discover(stage), -32601, "no such method")
    stage.refuse(stage.got("m", "initialize")[-1], -32600, "use 2026-07-28")
    assert stage.stopped == [("m", 1)]
    fault = stage.kernel.state.mounts["m"].last_fault
    assert fault is not None
    assert fault.detail == (
        "server/discover was refused with -32601: no such method; initialize was refused with -32600: use 2026-07-28"
    )


def test_a_server_that_breaks_on_a_request_it_does_not_know_is_asked_in_the_other_era_at_last() -> None:
    stage = started()
    stage.lose("m")
    begin(stage)
    assert opening(stage) == ["server/discover"]
    stage.lose("m")
    while stage.newest("m") == 2:
        stage.tick()
    begin(stage)
    assert opening(stage) == ["initialize"]


@pytest.mark.parametrize("starts", [1, 5])
def test_a_server_that_keeps_failing_is_asked_in_both_eras_in_turn(starts: int) -> None:
    """It may fail for a while for another reason, and break on a request of the era that is not its own."""
    stage = Stage(ANY, limits=Limits(unproductive_starts=starts))
    stage.initialize()
    asked = []
    for generation in range(1, 11):
        while stage.newest("m") < generation:
            stage.tick()
        begin(stage)
        asked += opening(stage)
        stage.lose("m")
    assert asked == ["initialize", "initialize", *["server/discover", "initialize"] * 4]


@pytest.mark.parametrize("code", [-32020, -32021, UNSUPPORTED_VERSION, -32600, -32601, -32602, -32603, -1])
def test_whatever_error_answers_initialize_the_other_era_is_tried_once(code: int) -> None:
    stage = initialized()
    stage.refuse(stage.got("m", "initialize")[-1], code)
    stage.reply(discover(stage), DISCOVERED)
    stage.list_tools("m", [tool("look")])
    assert opening(stage) == ["initialize", "server/discover"]
    assert era_of(stage) == "modern"
    assert stage.got("m", "notifications/initialized") == []


def test_a_result_that_is_none_leads_to_the_other_era_too() -> None:
    stage = initialized()
    stage.reply(stage.got("m", "initialize")[-1], {"hello": "there"})
    stage.reply(discover(stage), DISCOVERED)
    stage.list_tools("m", [tool("look")])
    assert era_of(stage) == "modern"


def test_a_silent_server_is_asked_in_the_other_era_after_a_part_of_its_time() -> None:
    stage = initialized()
    stage.wait(4.9)
    assert opening(stage) == ["initialize"]
    stage.wait(0.2)
    assert opening(stage) == ["initialize", "server/discover"]
    stage.reply(discover(stage), DISCOVERED)
    stage.list_tools("m", [tool("look")])
    assert era_of(stage) == "modern"


def test_a_slow_handshake_server_is_opened_by_its_late_answer() -> None:
    stage = initialized()
    stage.wait(6.0)
    stage.reply(stage.got("m", "initialize")[-1], OPENED)
    stage.refuse(discover(stage), -32601)
    stage.list_tools("m", [tool("look")])
    assert era_of(stage) == "handshake"
    assert stage.stopped == []
    assert len(stage.got("m", "notifications/initialized")) == 1
    stage.call(1, "look")
    stage.reply(stage.got("m", "tools/call")[-1], {"content": []})
    assert stage.answer(1)["result"] == {"content": []}


def test_a_slow_server_that_refuses_the_second_request_first_is_still_waited_for() -> None:
    stage = initialized()
    stage.wait(6.0)
    stage.refuse(discover(stage), -32601)
    assert stage.stopped == []
    stage.reply(stage.got("m", "initialize")[-1], OPENED)
    stage.list_tools("m", [tool("look")])
    assert era_of(stage) == "handshake"


def test_a_server_that_never_answers_is_stopped_with_what_it_was_asked() -> None:
    stage = initialized()
    stage.wait(31.0)
    assert ("m", 1) in stage.stopped
    fault = stage.kernel.state.mounts["m"].last_fault
    assert fault is not None
    assert (fault.code, fault.detail) == (
        "startup_timeout",
        "not ready within 30 s: initialize was not answered; server/discover was not answered",
    )


def test_the_era_that_worked_is_the_first_one_of_the_next_generation() -> None:
    stage = initialized()
    stage.refuse(stage.got("m", "initialize")[-1], -32600)
    stage.reply(discover(stage), DISCOVERED)
    stage.list_tools("m", [tool("look")])
    stage.lose("m")
    begin(stage)
    assert opening(stage) == ["server/discover"]
    stage.refuse(discover(stage), -32601)  # and it may have changed
    assert opening(stage) == ["server/discover", "initialize"]


def test_the_era_of_a_kept_catalog_is_the_first_one() -> None:
    stage = Stage(ANY, catalogs={"m": ChildCatalog(era="modern")})
    stage.initialize()
    begin(stage)
    assert opening(stage) == ["server/discover"]


def test_a_server_that_refuses_the_version_it_names_is_asked_again_once() -> None:
    stage = started()
    refusal = {"code": UNSUPPORTED_VERSION, "message": "no", "data": {"supported": [LATEST_MODERN]}}
    for _ in range(2):
        stage.says("m", 1, {"id": discover(stage).id, "error": refusal})
    assert opening(stage) == ["server/discover", "server/discover", "initialize"]


def test_the_worker_is_always_opened_by_the_handshake() -> None:
    stage = Stage(MountSpec("w", builtin=True), catalogs={"w": ChildCatalog(era="modern")})
    stage.feed(ChildStarted("w", 1, 4001))
    assert [sent.message["method"] for sent in stage.sent] == ["initialize"]
