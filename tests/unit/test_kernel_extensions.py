"""Apps of several servers: pages at the same address are told apart, and an app's call reaches its own server."""

from __future__ import annotations

from typing import Any

import pytest

from harness.kernel.stage import Stage, tool
from perdure.kernel.extensions import Addresses, with_addresses
from perdure.protocol.mounts import MountSpec

PAGE = "ui://page"


def app_tool(name: str, uri: str = PAGE, **more: Any) -> dict[str, Any]:
    return {**tool(name), "_meta": {"ui": {"resourceUri": uri, "visibility": ["app"]}, **more}}


class Apps(Stage):
    """Two servers with a page at the same address, which only the first one lists."""

    def __init__(self, *others: MountSpec, **tools: list[dict[str, Any]]) -> None:
        super().__init__(*(MountSpec(name, ("x",), prefix=f"{name}__") for name in ("a", "b")), *others)
        self.initialize()
        for name in ("a", "b"):
            offered = tools.get(name, [app_tool("show"), tool(f"only_{name}")])
            self.serve(name, offered, resources={"subscribe": True})
            listed = [{"uri": PAGE, "name": "page"}] if name == "a" else []
            self.reply(self.got(name, "resources/list")[-1], {"resources": listed})
            self.reply(self.got(name, "resources/templates/list")[-1], {"resourceTemplates": []})

    def open_page(self, mount: str, uri: str) -> dict[str, Any]:
        identity = f"read {uri}"
        self.request(identity, "resources/read", {"uri": uri})
        [asked] = self.got(mount, "resources/read")
        self.reply(asked, {"contents": [{"uri": asked.params["uri"], "text": mount}]})
        result: dict[str, Any] = self.answer(identity)["result"]
        return result


def test_pages_at_the_same_address_have_two_and_each_is_read_from_its_own_server() -> None:
    stage = Apps(b=[app_tool("show", **{"ui/resourceUri": PAGE, "x": 1.0})])
    stage.request(1, "tools/list")
    listed = {t["name"]: t.get("_meta") for t in stage.answer(1)["result"]["tools"]}
    assert listed["a__show"] == {"ui": {"resourceUri": PAGE, "visibility": ["app"]}}
    assert listed["b__show"] == {
        "ui": {"resourceUri": "ui://b/page", "visibility": ["app"]},
        "ui/resourceUri": "ui://b/page",
        "x": 1.0,
    }

    for mount, uri in (("a", PAGE), ("b", "ui://b/page")):
        assert stage.open_page(mount, uri) == {"contents": [{"uri": uri, "text": mount}]}
        assert stage.got(mount, "resources/read")[0].params == {"uri": PAGE}


def test_addresses_in_results_are_public_ones_and_data_stays_as_it_is() -> None:
    stage = Apps()
    stage.call(1, "b__show")
    data = {"uri": PAGE}
    content = [
        {"type": "resource_link", "uri": PAGE, "name": "page"},
        {"type": "resource", "resource": {"uri": PAGE, "text": PAGE}},
    ]
    meta = {"ui": {"resourceUri": PAGE}}
    result = {"content": content, "structuredContent": data, "_meta": meta}
    stage.reply(stage.got("b", "tools/call")[0], result)
    answer = stage.answer(1)["result"]
    assert answer["content"][0]["uri"] == "ui://b/page"
    assert answer["content"][1]["resource"] == {"uri": "ui://b/page", "text": PAGE}
    assert answer["_meta"]["ui"]["resourceUri"] == "ui://b/page"
    assert answer["structuredContent"] == data

    stage.call(2, "a__show")
    stage.reply(stage.got("a", "tools/call")[0], result)
    assert stage.answer(2)["result"] == result


def test_a_subscription_to_the_second_page_hears_of_that_one() -> None:
    stage = Apps()
    stage.request(1, "resources/subscribe", {"uri": "ui://b/page"})
    [asked] = stage.got("b", "resources/subscribe")
    assert asked.params == {"uri": PAGE}
    stage.reply(asked, {})
    stage.says("b", 1, {"method": "notifications/resources/updated", "params": {"uri": PAGE}})
    assert [n["params"] for n in stage.heard("notifications/resources/updated")] == [{"uri": "ui://b/page"}]

    stage.lose("b")
    stage.serve("b", [app_tool("show")], resources={"subscribe": True})
    for method, member in (("list", "resources"), ("templates/list", "resourceTemplates")):
        stage.reply(stage.got("b", f"resources/{method}", 2)[-1], {member: []})
    assert [s.params for s in stage.got("b", "resources/subscribe", 2)] == [{"uri": PAGE}]
    assert not stage.got("a", "resources/subscribe")


@pytest.mark.parametrize("is_restored", [False, True])
def test_an_app_calls_a_tool_by_its_bare_name(is_restored: bool) -> None:
    stage = Apps()
    stage.call(1, "show")
    assert stage.answer(1)["error"]["code"] == -32602  # no page is open yet

    stage.open_page("b", "ui://b/page")
    if is_restored:
        stage.restored()
    stage.call(2, "show", {"n": 1})
    [asked] = stage.got("b", "tools/call")
    assert asked.params == {"name": "show", "arguments": {"n": 1}}
    assert not stage.got("a", "tools/call")


def test_a_bare_name_that_two_open_apps_offer_is_refused_with_both_names() -> None:
    stage = Apps()
    stage.open_page("a", PAGE)
    stage.open_page("b", "ui://b/page")
    stage.call(1, "show")
    error = stage.answer(1)["error"]
    assert error["code"] == -32602
    assert error["data"] == {"mounts": ["a", "b"]}
    assert "a__show or b__show" in error["message"]

    stage.call(2, "only_b")  # the other app does not have it
    assert [s.params["name"] for s in stage.got("b", "tools/call")] == ["only_b"]


def test_a_worker_that_does_not_serve_yet_keeps_its_own_names_and_no_others() -> None:
    stage = Apps(MountSpec("worker", ("x",), builtin=True), b=[app_tool("show"), app_tool("read")])
    stage.open_page("b", "ui://b/page")
    stage.call(1, "read")
    assert not stage.got("b", "tools/call")
    stage.call(2, "show")
    assert [s.params["name"] for s in stage.got("b", "tools/call")] == ["show"]


def test_a_page_that_could_not_be_read_is_not_open() -> None:
    stage = Apps()
    stage.request(1, "resources/read", {"uri": PAGE})
    stage.refuse(stage.got("a", "resources/read")[0])
    stage.call(2, "show")
    assert stage.answer(2)["error"]["code"] == -32602


def test_no_two_addresses_share_a_public_one() -> None:
    addresses = Addresses()
    added = [
        ("a", PAGE),
        ("b", "ui://b/page"),
        ("b", PAGE),
        ("b", PAGE),
        ("c", "ui://b/page"),
        ("c", "x://y"),
    ]
    public = {(mount, uri): addresses.add(mount, uri) for mount, uri in added}
    assert len({*public.values()}) == len(public)
    for (mount, uri), address in public.items():
        assert address is not None
        assert addresses.owners[address] == mount
        assert addresses.inner(mount, address) == uri
    assert addresses.add("a", "x://y") is None


@pytest.mark.parametrize(
    "raw",
    [
        b'{"content":[{"type":"text","text":"ui:\\/\\/page"}],"n":1.50}',
        b'{"_meta":[1],"content":{"uri":7}}',
        b'{"content":' * 20_000 + b'{"uri":"ui://page"}' + b"}" * 20_000,
        b'"uri"',
    ],
)
def test_what_has_no_such_address_is_kept_byte_for_byte(raw: bytes) -> None:
    assert with_addresses(raw, lambda uri: "ui://b/page") is raw
