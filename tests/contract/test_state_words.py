"""What a model reads when a state tool did not do what it asked: a sentence, the next call, and that call works."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from state_tools import Store

from perdure.protocol.next_step import FILL, ToolCall, parse
from perdure.storage.memory import MemoryState

LEASE = {"action": "acquire", "name": "l", "owner": "me", "ttl_s": 60}
# How the key, the lease and the run were made: revisions 1, 2 and 3.
GIVEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("set_state", {"key": "k", "value": {"a": 1}}),
    ("lease", LEASE),
    ("once", {"action": "begin", "key": "job"}),
)


@pytest.fixture
def store() -> Store:
    found = Store(MemoryState())
    for tool, arguments in GIVEN:
        found.use(tool, **arguments)
    return found


def lines(store: Store, tool: str, **arguments: Any) -> list[str]:
    result = store.raw(tool, **{**arguments, "render": "porcelain", "detail": "concise"})
    assert result["isError"] is True
    text: str = result["content"][0]["text"]
    return text.split("\n")


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence", "step", "fill"),
    [
        (
            "set_state",
            {"key": "k", "value": "hello"},
            'not written: value is not JSON: it cannot be read at line 1 column 1. A text needs quotes: "\\"hello\\"".',
            "set_state key=k value=...",
            {"value": '"hello"'},
        ),
        (
            "set_state",
            {"key": "k", "value": "2", "expected_version": 7},
            "not written: k is at version 1, you expected 7.",
            "set_state key=k value=... expected_version:=1   (or get_state key=k)",
            {"value": "2"},
        ),
        (
            "set_state",
            {"key": "k", "value": "2", "expected_version": 0},
            "not written: k exists already.",
            "set_state key=k value=... expected_version:=1   (or get_state key=k)",
            {"value": "2"},
        ),
        (
            "set_state",
            {"key": "new", "value": "2", "expected_version": 3},
            "not written: new does not exist, and you expected a version of it.",
            "set_state key=new value=... expected_version:=0",
            {"value": "2"},
        ),
        (
            "set_state",
            {"key": "k", "value": "2", "lease": "free", "lease_token": 9},
            "not written: lease free is free: it ended, or token 9 released it.",
            "lease action=acquire name=free   (then set_state key=k value=... lease=free lease_token=...)",
            {},
        ),
        (
            "delete_state",
            {"key": "k", "expected_version": 2},
            "not deleted: k is at version 1, you expected 2.",
            "delete_state key=k expected_version:=1   (or get_state key=k)",
            {},
        ),
        (
            "state_patch",
            {"key": "k", "op": "merge", "value": {"b": 2}, "expected_version": 4},
            "not written: k is at version 1, you expected 4.",
            "state_patch key=k op=merge value=... expected_version:=1   (or get_state key=k)",
            {"value": {"b": 2}},
        ),
        (
            "state_patch",
            {"key": "k", "op": "revert", "value": 9},
            "k has no kept value of version 9.",
            "state_history key=k",
            {},
        ),
        (
            "state_txn",
            {
                "compare": [{"key": "k", "version": 2}, {"key": "x", "exists": True}],
                "then": {"op": "set", "key": "k", "value": 3},
            },
            "nothing written: k is at version 1, you expected version 2; x does not exist.",
            "get_state key=k   (then state_txn compare=... then=...)",
            {},
        ),
        (
            "state_txn",
            {"compare": [{"key": "k", "value": {"a": 2}}], "else": [{"op": "set", "key": "j", "value": "1"}]},
            "then was not applied: k has another value (version 1). else was applied: 1 write.",
            "get_state key=k   (then state_txn compare=... else=...)",
            {},
        ),
        (
            "lease",
            {"action": "release", "name": "l"},
            "release needs token: the number that acquire answered.",
            "lease action=release name=l token=...",
            {"token": 2},
        ),
        (
            "lease",
            {"action": "renew", "name": "free", "token": 9},
            "not renewed: lease free is free: it ended, or token 9 released it.",
            "lease action=acquire name=free",
            {},
        ),
        (
            "once",
            {"action": "finish", "key": "job"},
            "finish needs token: the number that begin answered.",
            "once action=finish key=job token=...",
            {"token": 3},
        ),
        (
            "once",
            {"action": "finish", "key": "other", "token": 9},
            "not finished: token 9 does not run other: its ttl_s passed, or begin never gave it out.",
            "once action=begin key=other",
            {},
        ),
        ("state_wait", {"timeout_s": 0}, "give key or prefix, exactly one.", None, {"key": "k"}),
        (
            "state_wait",
            {"key": "k", "prefix": "k", "after": 0},
            "give key or prefix, exactly one.",
            "state_wait key=k after:=0",
            {},
        ),
        ("list_state", {"limit": 0}, "limit must be from 1 to 1000.", "list_state", {}),
        (
            "get_state",
            {"key": "k", "at_revision": 9},
            "at_revision must be from 0 to 3, the newest revision.",
            "get_state key=k at_revision:=3",
            {},
        ),
    ],
)
def test_a_failure_says_why_and_its_next_step_works(
    store: Store, tool: str, arguments: dict[str, Any], sentence: str, step: str | None, fill: dict[str, Any]
) -> None:
    first, second, *_, code = lines(store, tool, **arguments)
    assert first == sentence
    if step is not None:
        assert second == f"next: {step}"
    assert re.fullmatch(r"\[[a-z_]+/[a-z_]+\]", code)
    call = parse(second.removeprefix("next: "))
    assert isinstance(call, ToolCall)
    unfilled = {name for name, value in call.arguments.items() if value == FILL}
    assert unfilled == fill.keys()
    store.use(call.tool, **{**call.arguments, **fill})


def test_a_token_that_does_not_hold_a_lease_is_told_who_does(store: Store) -> None:
    first, *_ = lines(store, "lease", action="release", name="l", token=9)
    assert re.fullmatch(r"not released: token 9 does not hold lease l; me holds it until 20[^ ]+Z\.", first)
    first, *_ = lines(store, "set_state", key="k", value="1", lease="l", lease_token=9)
    assert re.fullmatch(r"not written: token 9 does not hold lease l; me holds it until 20[^ ]+Z\.", first)


def test_a_conflict_carries_the_current_value_and_version(store: Store) -> None:
    found = store.use("set_state", key="k", value="2", expected_version=7)
    assert (found["status"], found["value"], found["version"]) == ("conflict", '{"a":1}', 1)
    row = store.use("state_txn", compare=[{"key": "k", "version": 7}])["failed"][0]
    assert (row["expected_version"], row["actual_version"], row["value"]) == (7, 1, '{"a":1}')


@pytest.mark.parametrize("value", [{"a": [1, None]}, [1, 2], 3, 2.5, True, None])
def test_a_value_is_any_json_or_its_text(store: Store, value: object) -> None:
    store.use("set_state", key="v", value=value)
    assert json.loads(store.use("get_state", key="v")["value"]) == value
    store.use("set_state", key="v", value=json.dumps(value))
    assert json.loads(store.use("get_state", key="v")["value"]) == value


def test_a_pattern_with_a_star_explains_like_and_prefix(store: Store) -> None:
    result = store.raw("list_state", pattern="pla*")["structuredContent"]
    assert result["keys"] == []
    assert result["message"] == (
        "pattern is SQL LIKE: % stands for any text, _ for one character, and * only for itself. "
        "For keys that start with pla, use prefix=pla."
    )
