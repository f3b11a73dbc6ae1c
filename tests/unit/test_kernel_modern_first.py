"""A server that is to be spoken to in the client's own era: opened in that of 2026 where it can be."""

from __future__ import annotations

from harness.kernel.stage import Sent, Stage, tool
from perdure.kernel.events import ChildStarted
from perdure.model.eras import LATEST_MODERN, UNSUPPORTED_VERSION
from perdure.model.mounts import MountSpec

SPEC = MountSpec("m", modern_first=True)
DISCOVERED = {"supportedVersions": [LATEST_MODERN], "capabilities": {"tools": {}}}
OPENED = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "m"}}


def started() -> Stage:
    stage = Stage(SPEC, wrapped=True)
    stage.request("d", "server/discover", modern=True)
    begin(stage)
    return stage


def begin(stage: Stage) -> None:
    newest = stage.newest("m")
    stage.feed(ChildStarted("m", newest, 4000 + newest))


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
    catalog = stage.kernel.state.mounts["m"].catalog
    assert catalog is not None
    assert catalog.era == "modern"
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
    catalog = stage.kernel.state.mounts["m"].catalog
    assert catalog is not None
    assert catalog.era == "handshake"
    stage.call(1, "look", modern=True)
    stage.reply(stage.got("m", "tools/call")[-1], {"content": []})
    assert stage.answer(1)["result"]["resultType"] == "complete"


def test_a_server_that_refuses_both_eras_is_not_asked_in_circles() -> None:
    stage = started()
    stage.refuse(discover(stage), -32601)
    stage.refuse(stage.got("m", "initialize")[-1], UNSUPPORTED_VERSION)
    stage.refuse(discover(stage), -32601)
    assert opening(stage)[:3] != ["server/discover"] * 3
    assert stage.stopped == [("m", 1)]


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
