"""What a 2026 client gets from servers of either era: who answered, how long a list stays fresh, every notification."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kernel.stage import Stage, tool
from perdure.kernel.events import ChildStarted, Shutdown
from perdure.protocol import eras
from perdure.protocol.mounts import MountSpec

WORKER = MountSpec("perdure", builtin=True)
ONE = MountSpec("one", prefix="one__")
TWO = MountSpec("two", prefix="two__")


def server_of(result: dict[str, Any]) -> Any:
    return result["_meta"][eras.META_SERVER]


def serving(era: eras.Era, *specs: MountSpec) -> Stage:
    stage = Stage(*specs, version="7")
    stage.request("d", "server/discover", modern=True)
    for spec in specs:
        stage.serve(spec.name, [tool("look")], era="handshake" if spec.builtin else era)
    return stage


def test_what_the_host_answers_says_so() -> None:
    stage = serving("handshake", ONE, TWO)
    stage.request(1, "tools/list", modern=True)
    stage.call(2, "health", modern=True)
    stage.request(3, "ping", modern=True)
    for identity in (1, 2, 3):
        assert server_of(stage.answer(identity)["result"]) == {
            "name": "perdure",
            "title": "Perdure",
            "version": "7",
        }


def test_the_result_of_a_handshake_server_says_which_one_it_was() -> None:
    stage = serving("handshake", ONE, TWO)
    stage.call(1, "two__look", modern=True)
    stage.reply(stage.got("two", "tools/call")[-1], {"content": [], "_meta": {"x.example/note": 1}})
    result = stage.answer(1)["result"]
    assert server_of(result) == {"name": "two", "version": "1"}
    assert result["_meta"]["x.example/note"] == 1


def test_a_handshake_client_gets_results_as_they_are() -> None:
    stage = Stage(ONE)
    stage.initialize()
    stage.serve("one", [tool("look")])
    stage.call(1, "one__look")
    stage.reply(stage.got("one", "tools/call")[-1], {"content": []})
    assert stage.answer(1)["result"] == {"content": []}


def test_a_question_and_a_stream_that_ends_say_who_answers() -> None:
    stage = serving("handshake", ONE)
    stage.request("stream", "subscriptions/listen", {"notifications": {}}, modern=True)
    stage.call(1, "one__look", modern=True)
    stage.says("one", 1, {"id": 5, "method": "elicitation/create", "params": {"message": "?"}})
    asked = stage.answer(1)["result"]
    assert asked["resultType"] == "input_required"
    assert server_of(asked)["name"] == "one"
    stage.feed(Shutdown())
    assert server_of(stage.answer("stream")["result"])["name"] == "perdure"


def test_an_unknown_notification_reaches_servers_of_both_eras() -> None:
    for era in ("handshake", "modern"):
        stage = serving(era, ONE)
        stage.notify("notifications/x/ping", {"n": 1})
        assert [sent.params for sent in stage.got("one", "notifications/x/ping")] == [{"n": 1}]


def test_roots_are_announced_to_handshake_servers_alone() -> None:
    for era, times in (("handshake", 1), ("modern", 0)):
        stage = serving(era, ONE)
        stage.notify("notifications/roots/list_changed")
        assert len(stage.got("one", "notifications/roots/list_changed")) == times


# --- cache hints -----------------------------------------------------------------------------------------------------


def hinted(*hints: dict[str, Any] | None) -> Stage:
    """A worker and servers of 2026 with these hints on their tools; None for a handshake server."""
    specs = [MountSpec(f"m{number}", prefix=f"m{number}__") for number in range(len(hints))]
    stage = Stage(WORKER, *specs)
    stage.request("d", "server/discover", modern=True)
    stage.serve("perdure", [tool("read")])
    for spec, hint in zip(specs, hints, strict=True):
        if hint is None:
            stage.serve(spec.name, [tool("look")])
            continue
        stage.feed(ChildStarted(spec.name, 1, 4001))
        stage.refuse(stage.got(spec.name, "initialize")[-1], -32601)
        discovered = {"supportedVersions": [eras.LATEST_MODERN], "capabilities": {"tools": {}}}
        stage.reply(stage.got(spec.name, "server/discover")[-1], discovered)
        stage.reply(stage.got(spec.name, "tools/list")[-1], {"tools": [tool("look")], **hint})
    return stage


def hint_of(stage: Stage, method: str = "tools/list") -> tuple[int, str]:
    identity = f"list-{len(stage.client)}"
    stage.request(identity, method, modern=True)
    result = stage.answer(identity)["result"]
    return result["ttlMs"], result["cacheScope"]


PUBLIC = {"ttlMs": 60_000, "cacheScope": "public"}


@pytest.mark.parametrize(
    ("hints", "joined"),
    [
        ([PUBLIC], (60_000, "public")),
        ([PUBLIC, {"ttlMs": 5_000, "cacheScope": "public"}], (5_000, "public")),
        ([PUBLIC, {"ttlMs": 90_000, "cacheScope": "private"}], (60_000, "private")),
        ([PUBLIC, {"ttlMs": -1, "cacheScope": "everyone"}], (0, "private")),
        ([PUBLIC, {"ttlMs": "soon"}], (0, "private")),
        ([PUBLIC, None], (0, "private")),
        ([], (0, "private")),
    ],
)
def test_the_smallest_time_and_the_narrowest_scope_count(hints: list[Any], joined: tuple[int, str]) -> None:
    assert hint_of(hinted(*hints)) == joined


def test_a_list_is_stale_while_a_server_is_not_there() -> None:
    stage = hinted(PUBLIC, PUBLIC)
    stage.lose("m1")
    assert hint_of(stage) == (0, "private")


def test_a_list_is_stale_once_the_session_chose_what_is_in_it() -> None:
    stage = hinted(PUBLIC)
    stage.call(1, "tools", {"action": "disable", "group": "admin"}, modern=True)
    assert hint_of(stage) == (0, "private")


def test_the_pages_of_a_list_are_joined() -> None:
    stage = hinted({**PUBLIC, "nextCursor": "2"})
    stage.reply(stage.got("m0", "tools/list")[-1], {"tools": [], "ttlMs": 1_000, "cacheScope": "public"})
    assert hint_of(stage) == (1_000, "public")


def test_a_resource_of_a_handshake_server_is_stale_at_once() -> None:
    stage = Stage(ONE)
    stage.request("d", "server/discover", modern=True)
    stage.serve("one", [tool("look")], resources={})
    for method, member in (
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        stage.reply(stage.got("one", method)[-1], {member: []})
    stage.request(1, "resources/read", {"uri": "x://y"}, modern=True)
    stage.reply(stage.got("one", "resources/read")[-1], {"contents": []})
    assert stage.answer(1)["result"]["ttlMs"] == 0
