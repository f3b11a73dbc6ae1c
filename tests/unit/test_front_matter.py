"""YAML front matter: safe to read, and nothing lost when it is changed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from perdure.protocol.envelope import ToolError
from perdure.surfaces.write.handoff.document import Step
from perdure.surfaces.write.handoff.step_graph import GraphError, ready_steps
from perdure.text import front_matter


def reason(front: str) -> str:
    with pytest.raises(ToolError) as refused:
        front_matter.parse(front)
    assert refused.value.envelope.error == "invalid_input"
    return str(refused.value.envelope.context["reason"])


def test_split_and_join_keep_the_document() -> None:
    text = "---\na: 1\n---\n\n  body\n---\nmore\n\n"
    front, body = front_matter.split(text)
    assert (front, body) == ("a: 1\n", "\n  body\n---\nmore\n\n")
    assert front_matter.join(front, body) == text


@pytest.mark.parametrize("text", ["", "no", "---\na: 1\n", "text\n---\na: 1\n---\n", "----\na: 1\n---\n"])
def test_a_document_without_front_matter_is_refused(text: str) -> None:
    with pytest.raises(ToolError):
        front_matter.split(text)


def test_values_are_parsed_as_json_values() -> None:
    found = front_matter.parse(
        "when: 2026-01-02T03:04:05Z\nday: 2026-01-02\nx: .inf\nb: yes\nn:\nl: [1, a]\n1: one\n"
    )
    assert found["when"].startswith("2026-01-02T03:04:05")
    assert (found["day"], found["x"], found["n"], found["l"], found["1"]) == (
        "2026-01-02",
        "inf",
        None,
        [1, "a"],
        "one",
    )


def test_a_change_keeps_comments_order_quotes_and_times() -> None:
    before = "# who\nagent: 'a'  # me\nwhen: 2026-01-02 03:04:05\nextra: [1, 2]\nsummary: old\n"
    values = {**front_matter.parse(before), "summary": "new", "added": True}
    assert front_matter.render(values, before) == (
        "# who\nagent: 'a'  # me\nwhen: 2026-01-02 03:04:05\nextra: [1, 2]\nsummary: new\nadded: true\n"
    )


def test_a_value_that_looks_like_another_type_stays_text() -> None:
    values = {
        "a": "yes",
        "b": "1",
        "c": "2026-01-02",
        "d": "x: y",
        "e": "- z",
        "f": "",
        "g": "line\nline\n",
        "h": "null",
    }
    assert front_matter.parse(front_matter.render(values)) == values


@pytest.mark.parametrize(
    ("front", "why"),
    [
        ("a: " + "[" * 100_000, "too_deep"),
        ("a: " + "{x: " * 100 + "1" + "}" * 100, "too_deep"),
        ("- " * 100 + "a", "too_deep"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(100)), "too_deep"),
        ("a: [1, 2", "yaml_error"),
        ("a: b: c", "yaml_error"),
        ("a: !!python/object/apply:os.system [x]\n&a b: *c", "yaml_error"),
        ("- 1\n- 2", "not_a_mapping"),
        ("x: " + "y" * 300_000, "too_large"),
        ("a: &a [" + "x," * 9 + "]\nb: [" + "*a," * 101 + "]", "too_many_references"),
        ("a: 1\na: 2", "yaml_error"),
    ],
)
def test_dangerous_yaml_is_refused(front: str, why: str) -> None:
    assert reason(front) == why


def test_expanded_aliases_are_bounded() -> None:
    levels = ["a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert reason("\n".join(levels)) == "too_large_expanded"


def test_brackets_in_a_text_are_no_nesting() -> None:
    text = " ".join(["[x]: {y}: - [" for _ in range(100)])
    assert front_matter.parse(front_matter.render({"summary": text})) == {"summary": text}


def test_ready_steps_are_those_whose_needs_are_done() -> None:
    steps = [
        Step("a", status="done"),
        Step("b", depends_on=["a"]),
        Step("c", depends_on=["b"]),
        Step("d", depends_on=["a"], status="blocked"),
        Step("e"),
    ]
    assert ready_steps(steps) == ["b", "e"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([Step("a", depends_on=["b"]), Step("b", depends_on=["a"]), Step("c")], "circle: a, b"),
        ([Step("a", depends_on=["a"])], "circle"),
        ([Step("a", depends_on=["z"])], "which is not there"),
        ([Step("a"), Step("a")], "twice"),
    ],
)
def test_steps_without_an_order_are_refused(steps: list[Step], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        ready_steps(steps)


LETTERS = [
    *"abZ019 -:#'\"\\,[]{}&*!|>%@?.~_/=é\n\t",
    "true",
    "null",
    "yes",
    "2026-01-01",
    "0x1",
    ": ",
    " #",
    "- ",
]


def any_value(chance: random.Random, depth: int = 0) -> Any:
    text = "".join(chance.choice(LETTERS) for _ in range(chance.randrange(8)))
    match chance.randrange(4 if depth < 4 else 2):
        case 0:
            return chance.choice([text, text.strip("- :#'"), "fix it", "It's a.b/c", 7, -1, True, None, 1.5])
        case 1:
            return text
        case 2:
            return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        case _:
            names = ("a", "b_c", "yes", text or "k")
            return {chance.choice(names): any_value(chance, depth + 1) for _ in range(chance.randrange(3))}


def test_rendered_values_are_parsed_back() -> None:
    chance = random.Random(7)
    for _ in range(300):
        names = chance.sample(("task_id", "summary", "steps", "x1", "on"), chance.randrange(1, 5))
        values = {name: any_value(chance) for name in names}
        assert front_matter.parse(front_matter.render(values)) == values
