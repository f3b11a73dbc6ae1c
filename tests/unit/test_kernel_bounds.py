"""What a mounted server, or a client, decides about is bounded: catalogs, URI templates, suggestions (law 8)."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from harness.kernel.stage import Stage, tool
from perdure.kernel.catalog import MOST_TEMPLATE, MOST_URI, parse_template
from perdure.protocol.mounts import Limits, MountSpec

A = MountSpec("a", prefix="a__")
AB = MountSpec("a__b", prefix="a__b__")


# --- URI templates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "uri", "is_match"),
    [
        ("r://a", "r://a", True),
        ("r://a", "r://ab", False),
        ("r://{x}", "r://", True),
        ("r://{x}/end", "r://a/b/end", True),
        ("r://{x}/end", "r://a/b/END", False),
        ("r://{x}/end", "r:///end", True),
        ("{x}aba", "aba", True),
        ("ab{x}ba", "aba", False),
        ("gh://{owner}/{repo}/pulls/{n}/files", "gh://o/r/pulls/7/files", True),
        ("gh://{owner}/{repo}/pulls/{n}/files", "gh://o/r/pull/7/files", False),
        ("r://{never closed", "r://{never closed", True),
        ("", "", True),
    ],
)
def test_a_template_matches_its_literals_in_order(template: str, uri: str, is_match: bool) -> None:
    parsed = parse_template(template)
    assert parsed is not None
    assert parsed.matches(uri) is is_match


def test_templates_match_what_a_pattern_of_any_text_would() -> None:
    draw = random.Random(5)
    for _ in range(3000):
        template = "".join(draw.choice(["a", "b", "ab", "{x}", "{}", "/"]) for _ in range(draw.randrange(7)))
        uri = "".join(draw.choice("ab/") for _ in range(draw.randrange(9)))
        pattern = ".*".join(re.escape(part) for part in re.split(r"\{[^}]*\}", template))
        parsed = parse_template(template)
        assert parsed is not None
        assert parsed.matches(uri) == bool(re.fullmatch(pattern, uri, re.DOTALL)), (template, uri)


class CountedText(str):
    """A text that counts how often it is searched."""

    searches = 0

    def find(self, *given: Any) -> int:
        CountedText.searches += 1
        return super().find(*given)


def test_a_hostile_template_is_matched_in_one_pass() -> None:
    parsed = parse_template("r://" + "{a}x" * 25 + "!")
    assert parsed is not None

    assert not parsed.matches(CountedText("r://" + "x" * 60))
    assert not parsed.matches(CountedText("r://" + "x" * 60 + "!x"))
    assert parsed.matches(CountedText("r://" + "x" * 60 + "x!"))

    assert CountedText.searches <= 3 * 25


def served_templates(*templates: str) -> Stage:
    stage = Stage(A, AB)
    stage.initialize()
    stage.serve("a", [tool("look")], resources={})
    stage.reply(stage.got("a", "resources/list")[-1], {"resources": []})
    stage.reply(
        stage.got("a", "resources/templates/list")[-1],
        {"resourceTemplates": [{"name": str(n), "uriTemplate": one} for n, one in enumerate(templates)]},
    )
    stage.serve("a__b", [tool("look")], resources={})
    for method, member in (
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        stage.reply(stage.got("a__b", method)[-1], {member: []})
    return stage


def test_templates_and_uris_beyond_their_bounds_find_no_server() -> None:
    stage = served_templates("r://{x}", "s://" + "y" * MOST_TEMPLATE + "{x}")
    stage.request(1, "resources/read", {"uri": "r://1"})
    stage.request(2, "resources/read", {"uri": "r://" + "x" * MOST_URI})
    stage.request(3, "resources/read", {"uri": "s://" + "y" * MOST_TEMPLATE})

    assert len(stage.got("a", "resources/read")) == 1
    assert "error" in stage.answer(2)
    assert "error" in stage.answer(3)
    stage.request(4, "resources/templates/list")
    assert len(stage.answer(4)["result"]["resourceTemplates"]) == 2


# --- catalogs -----------------------------------------------------------------------------------------------


def page(stage: Stage, tools: list[dict[str, Any]], cursor: str | None = None) -> None:
    result: dict[str, Any] = {"tools": tools, **({"nextCursor": cursor} if cursor else {})}
    stage.reply(stage.got("a", "tools/list")[-1], result)


@pytest.mark.parametrize(
    "limits", [Limits(catalog_items=10), Limits(catalog_bytes=500)], ids=["items", "bytes"]
)
def test_a_server_whose_lists_never_end_is_refused_with_the_bound(limits: Limits) -> None:
    stage = Stage(A, limits=limits)
    stage.initialize()
    stage.serve("a", [tool("t0")])  # within the bounds
    stage.lose("a")
    stage.serve("a", [tool(f"t{number}") for number in range(20)])

    fault = stage.kernel.state.mounts["a"].last_fault
    assert fault is not None
    assert fault.code == "catalog_too_large"
    assert ("a", 2) in stage.stopped


def test_fat_pages_are_counted_together() -> None:
    stage = Stage(A, limits=Limits(catalog_items=10))
    stage.initialize()
    stage.serve("a", [tool(f"t{number}") for number in range(4)])
    stage.says("a", 1, {"method": "notifications/tools/list_changed"})
    for number in range(3):
        page(stage, [tool(f"p{number}_{n}") for n in range(4)], cursor=f"c{number}")

    assert (
        len(stage.got("a", "tools/list")) == 4
    )  # the third page was over the bound: no fourth was asked for
    stage.request("l", "tools/list")
    names = [one["name"] for one in stage.answer("l")["result"]["tools"]]
    assert "a__t0" in names
    assert not [name for name in names if name.startswith("a__p")]
    assert stage.stopped == []


def test_a_server_that_serves_can_list_again_after_it_was_over_the_bound() -> None:
    stage = Stage(A, limits=Limits(catalog_items=5))
    stage.initialize()
    stage.serve("a", [tool("t0")])
    stage.says("a", 1, {"method": "notifications/tools/list_changed"})
    page(stage, [tool(f"x{n}") for n in range(9)])
    stage.says("a", 1, {"method": "notifications/tools/list_changed"})
    page(stage, [tool("new")])

    stage.request("l", "tools/list")
    assert "a__new" in [one["name"] for one in stage.answer("l")["result"]["tools"]]


# --- names --------------------------------------------------------------------------------------------------


def test_the_longest_prefix_places_a_prompt_as_it_does_a_tool() -> None:
    stage = Stage(A, AB)
    stage.initialize()
    stage.serve("a", [], prompts={})
    stage.reply(stage.got("a", "prompts/list")[-1], {"prompts": []})
    stage.serve("a__b", [], prompts={})
    stage.reply(stage.got("a__b", "prompts/list")[-1], {"prompts": []})

    stage.request(1, "prompts/get", {"name": "a__b__x"})

    assert stage.got("a", "prompts/get") == []
    assert stage.got("a__b", "prompts/get")[0].params["name"] == "x"


def test_only_the_beginning_of_a_name_is_compared_for_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    import difflib

    compared: list[int] = []

    def record(word: str, *rest: Any) -> list[str]:
        compared.append(len(word))
        return []

    monkeypatch.setattr(difflib, "get_close_matches", record)
    stage = Stage()
    stage.initialize()

    stage.call(1, "y" * 1_000_000)

    assert stage.answer(1)["error"]["code"] == -32602
    assert compared == [64]
