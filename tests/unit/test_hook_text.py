"""Perdure's hooks in a client's file: added and removed by span, and nobody else's touched."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.hooks.clients import client_module
from perdure.hooks.relay import CLIENTS as NAMES
from perdure.registry.clients.config_text import Uneditable
from perdure.registry.clients.hook_text import (
    has_hooks,
    is_own_command,
    own_commands,
    with_hooks,
    without_hooks,
)

COMMAND = "/opt/perdure/bin/perdure hook journal"
OTHER = {"type": "command", "command": "prettier --write"}
GROUP = {"matcher": "Write", "hooks": [OTHER]}


def put(text: str, client: str = "claude-code", command: str = COMMAND) -> str:
    module = client_module(client)
    return with_hooks(text, module.entries(f"{command} --client {client}"), module.PRESET)


def hooks_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["hooks"]
    return found


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize(
    "text", ["", "{}", "{}\n", '{"hooks": {}}', '{"hooks": null}', '{"a": [1], "b": {}}\n']
)
def test_every_event_gets_one_entry_and_a_second_time_none(client: str, text: str) -> None:
    once = put(text, client)
    assert {event: len(values) for event, values in hooks_of(once).items()} == dict.fromkeys(
        client_module(client).entries(""), 1
    )
    assert put(once, client) == once
    assert has_hooks(once)
    assert not has_hooks(without_hooks(once))
    assert own_commands(once) == [f"{COMMAND} --client {client}"]


def test_hooks_of_others_and_comments_stay() -> None:
    text = """{
  // mine
  "model": "x",
  "hooks": {
    "PreToolUse": [
      {"matcher": "Bash", "hooks": [{"type": "command", "command": "my-check"}]}, // keep
    ],
    "Notification": [{"hooks": [{"type": "command", "command": "beep"}]}]
  }
}
"""
    new = put(text)
    assert "// mine" in new
    assert "// keep" in new
    assert new.index("my-check") < new.index(COMMAND)
    back = without_hooks(new)
    assert COMMAND not in back
    assert '"my-check"' in back
    assert '"beep"' in back
    assert "// keep" in back


@pytest.mark.parametrize(
    "old",
    [
        "perdure hook journal",
        "/usr/bin/python3 -P -m perdure hook journal",
        "'/a b/perdure' hook journal --client claude-code --workspace /w",
        "env X=1 perdure.exe hook journal",
    ],
)
def test_an_entry_of_another_version_is_replaced_in_its_place(old: str) -> None:
    mine = {"matcher": "Write|Edit", "hooks": [{"type": "command", "command": old}]}
    after = {"hooks": [{"type": "command", "command": "after"}]}
    text = json.dumps({"hooks": {"PreToolUse": [GROUP, mine, after, mine], "Gone": [mine]}}, indent=2)
    found = hooks_of(put(text))
    assert [entry["hooks"][0]["command"] for entry in found["PreToolUse"]] == [
        "prettier --write",
        f"{COMMAND} --client claude-code",
        "after",
    ]
    assert "Gone" not in found


def test_a_group_that_is_shared_keeps_what_is_not_ours() -> None:
    shared = {"matcher": "Write", "hooks": [{"type": "command", "command": "perdure hook journal"}, OTHER]}
    text = json.dumps({"hooks": {"PreToolUse": [shared]}})
    found = hooks_of(put(text))["PreToolUse"]
    assert found[0] == GROUP
    assert found[1]["hooks"][0]["command"] == f"{COMMAND} --client claude-code"
    assert json.loads(without_hooks(text)) == {"hooks": {"PreToolUse": [GROUP]}}


@pytest.mark.parametrize(
    "command",
    ["perdure hook steer", "echo hook journal", "perdure journal", "hook journal", "'", "", None, 7],
)
def test_a_command_that_is_not_ours(command: Any) -> None:
    assert not is_own_command(command)


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "{", '{"hooks": 1}']
)
def test_a_file_that_is_no_settings_file_is_left_alone(text: str) -> None:
    with pytest.raises(Uneditable):
        put(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HOOKS = st.dictionaries(
    st.sampled_from(["PreToolUse", "PostToolUse", "Stop", "Notification"]),
    st.lists(
        st.sampled_from([GROUP, {"hooks": [OTHER, OTHER]}, {"command": "flat"}]), min_size=1, max_size=3
    ),
    min_size=1,
)


@given(
    st.dictionaries(
        st.text(max_size=5).filter(lambda key: key not in ("hooks", "version")), VALUES, max_size=3
    ),
    HOOKS,
    st.sampled_from([None, 1, 2, 4, "\t"]),
    st.sampled_from(NAMES),
)
def test_what_was_there_is_there_again(
    settings: dict[str, Any], hooks: dict[str, Any], indent: Any, client: str
) -> None:
    before = {**settings, "hooks": hooks}
    new = put(json.dumps(before, indent=indent), client)
    found = json.loads(new)
    for event, entries in hooks.items():
        assert found["hooks"][event][: len(entries)] == entries
    assert {key: found[key] for key in settings} == settings
    back = json.loads(without_hooks(new))
    back.pop("version", None)
    assert back == before
