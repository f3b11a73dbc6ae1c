"""What a model is told about the tools: all that there are, in few bytes."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from perdure.kernel import ops
from perdure.model.eras import META_CONTRACT
from perdure.model.instructions import INSTRUCTIONS
from perdure.model.tools import definition
from perdure.worker.compose import Settings, surfaces

MOST_BYTES = 26_000
WRITE_TOOLS = [
    "risk_score",
    "safe_write",
    "read",
    "edit",
    "safe_replace",
    "transaction",
    "journal_tail",
    "history",
    "diff",
    "undo",
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


def listed() -> list[dict[str, Any]]:
    """As a client sees them: the contract is between the worker and the host."""
    found = [msgspec.json.decode(entry.definition) for entry in ops.entries()]
    for surface in surfaces(Settings(workspaces=("/",))):
        for tool in surface.tools():
            public = definition(tool.spec)
            del public["_meta"][META_CONTRACT]
            found.append(public)
    return found


def test_the_whole_list_is_short() -> None:
    """What a model reads of it: `_meta` is for its client."""
    read = [{key: value for key, value in tool.items() if key != "_meta"} for tool in listed()]
    assert len(msgspec.json.encode(read)) < MOST_BYTES


def test_a_client_that_hides_tools_behind_a_search_finds_every_one() -> None:
    meta = {tool["name"]: tool["_meta"] for tool in listed()}
    always = {name for name, known in meta.items() if known == {"anthropic/alwaysLoad": True}}
    assert always == {"safe_write", "read", "edit", "transaction", "undo", "get_state", "set_state"}
    for name in meta.keys() - always:
        assert list(meta[name]) == ["anthropic/searchHint"], name
        assert 10 < len(meta[name]["anthropic/searchHint"]) < 80, name


def test_every_write_tool_is_there_and_says_what_it_is_for() -> None:
    tools = {tool["name"]: tool for tool in listed()}
    assert [name for name in WRITE_TOOLS if name not in tools] == []
    for tool in tools.values():
        assert len(tool["description"]) > 20, tool["name"]
        assert {"render", "detail"} <= set(tool["inputSchema"]["properties"]), tool["name"]
        assert tool["inputSchema"]["additionalProperties"] is False


def test_every_argument_is_typed_as_every_client_can_take_it() -> None:
    for tool in listed():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool["name"])
        assert not {"anyOf", "oneOf", "allOf", "enum", "not"} & set(tool["inputSchema"]), tool["name"]
        assert untyped(tool["inputSchema"]) == [], tool["name"]


def untyped(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Services of some models refuse a whole list for one argument without a type, or with several."""
    own = schema.get("anyOf", [schema])
    found = [one for one in own if not isinstance(one.get("type"), str)]
    found += [one for one in own if one.get("type") == "array" and "items" not in one]
    inner = [*schema.get("properties", {}).values(), *(one["items"] for one in own if "items" in one)]
    return found + [bad for one in inner for bad in untyped(one)]


def test_the_instructions_are_short_and_explain_what_the_schemas_leave_out() -> None:
    assert len(INSTRUCTIONS) < 1_500
    bare = {
        name
        for tool in listed()
        for name, schema in tool["inputSchema"]["properties"].items()
        if "description" not in schema
        and name in ("classify", "force", "idempotency_key", "validate", "draft")
    }
    assert [name for name in bare if name not in INSTRUCTIONS] == []
    assert [
        word
        for word in ("safe_write", "chunk_append", "scratch_put", "handoff_read")
        if word not in INSTRUCTIONS
    ] == []
