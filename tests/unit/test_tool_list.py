"""What a model is told about the tools: all that there are, in few bytes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from perdure.protocol.instructions import instructions
from perdure.protocol.tool_groups import GROUP_OF, GROUPS, PROFILES, STATE_TOOLS, enabled_groups
from perdure.protocol.tools import public_definition
from perdure.surfaces.ops import host_tools
from perdure.worker.compose import Settings, surfaces

MOST_BYTES = {"core": 11_500, "standard": 24_000, "full": 32_000}
CORE = [
    "read",
    "safe_write",
    "edit",
    "transaction",
    "history",
    "diff",
    "undo",
    "restore",
    "get_state",
    "set_state",
    "handoff_read",
    "handoff_write",
    "health",
    "tools",
]
WRITE_TOOLS = [
    "risk_score",
    "safe_write",
    "read",
    "edit",
    "safe_replace",
    "transaction",
    "journal_tail",
    "timeline",
    "history",
    "diff",
    "undo",
    "rewind",
    "restore",
    "validate",
    "analytics",
    "chunk_write",
    "chunk_append",
    "chunk_compose",
    "chunk_reset",
    "chunk_status",
    "chunk_preview",
    "scratch_put",
    "scratch_ref",
    "scratch_get",
    "scratch_drop",
    "handoff_write",
    "handoff_read",
    "checkpoint",
    "checkpoint_read",
    "checkpoint_list",
    "checkpoint_cleanup",
]


def listed(profile: str = "full") -> list[dict[str, Any]]:
    """As a client of the host sees them."""
    found = [msgspec.json.decode(entry.definition) for entry in host_tools.entries()]
    for surface in surfaces(Settings(workspaces=("/",))):
        found += [public_definition(tool.spec) for tool in surface.tools()]
    groups = enabled_groups(profile, {})
    return [tool for tool in found if GROUP_OF[tool["name"]] in groups]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_list_of_a_profile_is_short(profile: str) -> None:
    size = len(msgspec.json.encode({"tools": listed(profile)}))
    assert size <= MOST_BYTES[profile]


def test_every_tool_is_in_one_group() -> None:
    named = [tool for group in GROUPS for tool in group.tools]
    assert sorted(named) == sorted(tool["name"] for tool in listed())
    assert list(GROUPS[0].tools) == CORE
    assert {tool["name"] for tool in listed("core")} == set(CORE)
    state = next(one for one in surfaces(Settings(workspaces=("/",))) if one.name == "state")
    assert {tool.spec.name for tool in state.tools()} == STATE_TOOLS


SEARCHES = {
    "append": "safe_write",
    "delete file": "transaction",
    "audit log": "journal_tail",
    "versions": "history",
    "API keys": "risk_score",
    "syntax": "validate",
    "too large": "chunk_append",
    "take over": "handoff_read",
    "next agent": "handoff_write",
    "crash": "checkpoint",
    "lock": "lease",
    "mutex": "lease",
    "cron": "once",
    "counter": "state_patch",
    "wait": "state_wait",
    "compare-and-swap": "state_txn",
    "restart server": "mounts",
}


@pytest.mark.parametrize("words", SEARCHES)
def test_a_client_that_hides_tools_behind_a_search_finds_the_tool(words: str) -> None:
    tool = next(one for one in listed() if one["name"] == SEARCHES[words])
    hint = tool.get("_meta", {}).get("anthropic/searchHint", "")
    text = " ".join((tool["name"], tool["title"], tool["description"], hint)).lower()
    assert [word for word in words.lower().split() if word not in text] == []


def test_the_tools_of_every_task_are_loaded_without_a_search() -> None:
    always = {tool["name"] for tool in listed() if tool.get("_meta", {}).get("anthropic/alwaysLoad")}
    assert always == {"safe_write", "read", "edit", "transaction", "undo", "get_state", "set_state"}


def test_every_write_tool_is_there_and_says_what_it_is_for() -> None:
    tools = {tool["name"]: tool for tool in listed()}
    assert [name for name in WRITE_TOOLS if name not in tools] == []
    for tool in tools.values():
        assert 20 < len(tool["description"]) <= 200, tool["name"]
        assert 4 < len(tool["title"]) <= 32, tool["name"]
        assert {"render", "detail"} <= set(tool["inputSchema"]["properties"]), tool["name"]
        assert tool["inputSchema"]["additionalProperties"] is False


def test_every_argument_is_typed_as_every_client_can_take_it() -> None:
    for tool in listed():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"])
        assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(tool["inputSchema"]), tool["name"]
        assert untyped(tool["inputSchema"]) == [], tool["name"]


TWINS = [
    ("safe_replace", "edit"),
    ("safe_write", "edit"),
    ("force_set_state", "set_state"),
    ("checkpoint", "handoff_write"),
    ("checkpoint", "set_state"),
    ("handoff_write", "checkpoint"),
    ("scratch_put", "checkpoint"),
    ("scratch_put", "set_state"),
    ("chunk_write", "chunk_append"),
    ("journal_tail", "history"),
    ("analytics", "journal_tail"),
    ("timeline", "journal_tail"),
    ("telemetry", "analytics"),
    ("mounts", "tools"),
]


@pytest.mark.parametrize(("tool", "twin"), TWINS)
def test_a_description_names_the_tool_to_use_instead(tool: str, twin: str) -> None:
    assert twin in next(one for one in listed() if one["name"] == tool)["description"]


DESTRUCTIVE = {
    "chunk_compose",
    "checkpoint",
    "checkpoint_cleanup",
    "chunk_reset",
    "chunk_write",
    "delete_state",
    "edit",
    "force_set_state",
    "handoff_write",
    "mounts",
    "restore",
    "safe_replace",
    "safe_write",
    "scratch_drop",
    "set_state",
    "state_patch",
    "state_txn",
    "transaction",
    "rewind",
    "undo",
}
IDEMPOTENT = {
    "checkpoint",
    "checkpoint_cleanup",
    "chunk_reset",
    "chunk_write",
    "delete_state",
    "restore",
    "scratch_drop",
    "scratch_put",
    "tools",
}


def test_the_hints_say_what_a_tool_may_do() -> None:
    hints = {tool["name"]: tool["annotations"] for tool in listed()}
    assert {name for name, known in hints.items() if known.get("destructiveHint")} == DESTRUCTIVE
    assert {name for name, known in hints.items() if known.get("idempotentHint")} == IDEMPOTENT
    for name, known in hints.items():
        assert known["openWorldHint"] is False, name
        assert ("destructiveHint" in known) != (known.get("readOnlyHint") is True), name


def untyped(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Services of some models refuse a whole list for one argument without a type, or with several."""
    is_bad = not isinstance(schema.get("type"), str) or (schema["type"] == "array" and "items" not in schema)
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema] * is_bad + [bad for one in inner for bad in untyped(one)]


def test_the_instructions_explain_what_the_schemas_leave_out() -> None:
    text = instructions(GROUP_OF)
    assert len(text) < 1_600
    bare = {
        name
        for tool in listed()
        for name, schema in tool["inputSchema"]["properties"].items()
        if "description" not in schema
        and name in ("classify", "force", "idempotency_key", "validate", "draft", "render", "detail")
    }
    assert [name for name in bare if name not in text] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_the_instructions_name_only_what_is_listed(profile: str) -> None:
    groups = enabled_groups(profile, {})
    on = [tool for group in GROUPS if group.name in groups for tool in group.tools]
    off = [group for group in GROUPS if group.name not in groups]
    text = instructions(on, off, "/work/project")
    words = set(re.findall(r"[a-z0-9_]+", text))
    hidden = [tool for group in off for tool in group.tools]
    assert [tool for tool in hidden if "_" in tool and tool in words] == []
    assert "/work/project" in text
    assert [group.name for group in off if f"{group.name} (" not in text] == []
    assert ("action=enable" in text) == bool(off)


def test_without_any_tool_of_a_kind_the_instructions_say_nothing_of_it() -> None:
    text = instructions(["get_state", "set_state"])
    assert "get_state" in text
    assert not {"safe_write", "edit", "undo"} & set(re.findall(r"[a-z0-9_]+", text))
