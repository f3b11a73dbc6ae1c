"""Headers that repeat a tool's arguments say what the body says, or the call is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from perdure.serve.validation import HEADER_MISMATCH
from perdure.serve.validation import check_arguments as check

REGION = {"region": {"type": "string", "x-mcp-header": "Region"}}
NESTED = {"where": {"type": "object", "properties": REGION}}
COUNT = {"n": {"type": "integer", "x-mcp-header": "N"}}
FLAG = {"on": {"type": "boolean", "x-mcp-header": "On"}}


def said(schema: Any, arguments: Any, *headers: tuple[str, str]) -> int | None:
    """The code of the refusal, or None."""
    full = {"type": "object", "properties": schema} if "type" not in schema else schema
    definition = msgspec.json.encode({"name": "t", "inputSchema": full})
    params = {"name": Raw(b'"t"'), "arguments": Raw(msgspec.json.encode(arguments))}
    found = check(definition, params, [(k.lower().encode(), v.encode("latin-1")) for k, v in headers])
    return found.code if found is not None else None


@pytest.mark.parametrize(
    ("schema", "arguments", "headers"),
    [
        (REGION, {"region": "eu"}, [("Mcp-Param-Region", "eu")]),
        (REGION, {"region": "Hello"}, [("Mcp-Param-Region", "=?base64?SGVsbG8=?=")]),
        (REGION, {"region": "SGVsbG8="}, [("Mcp-Param-Region", "SGVsbG8=")]),
        (REGION, {"region": "=?base64?SGVsbG8="}, [("Mcp-Param-Region", "=?base64?SGVsbG8=")]),
        (REGION, {}, []),
        (REGION, {"region": None}, []),
        (NESTED, {"where": {"region": "eu"}}, [("Mcp-Param-Region", "eu")]),
        (COUNT, {"n": 42}, [("Mcp-Param-N", "42.0")]),
        (COUNT, {"n": -7}, [("Mcp-Param-N", "-7")]),
        (FLAG, {"on": True}, [("Mcp-Param-On", "true")]),
        ({"plain": {"type": "string"}}, {"plain": "x"}, [("Mcp-Param-Plain", "y")]),
    ],
)
def test_a_header_that_agrees_is_accepted(schema: Any, arguments: Any, headers: Any) -> None:
    assert said(schema, arguments, *headers) is None


@pytest.mark.parametrize(
    ("schema", "arguments", "headers"),
    [
        (REGION, {"region": "eu"}, [("Mcp-Param-Region", "us")]),
        (REGION, {"region": "eu"}, []),
        (REGION, {}, [("Mcp-Param-Region", "eu")]),
        (REGION, {"region": "eu"}, [("Mcp-Param-Region", "eu"), ("Mcp-Param-Region", "eu")]),
        (REGION, {"region": "Hello"}, [("Mcp-Param-Region", "=?base64?SGVsbG8?=")]),
        (REGION, {"region": "Hello"}, [("Mcp-Param-Region", "=?base64?SGVs!!!bG8=?=")]),
        (REGION, {"region": ["eu"]}, [("Mcp-Param-Region", "eu")]),
        (NESTED, {"where": {"region": "eu"}}, []),
        (COUNT, {"n": 42}, [("Mcp-Param-N", "42.5")]),
        (COUNT, {"n": 42}, [("Mcp-Param-N", "4.2e1")]),
        (COUNT, {"n": 1}, [("Mcp-Param-N", "true")]),
        (FLAG, {"on": True}, [("Mcp-Param-On", "True")]),
    ],
)
def test_a_header_that_contradicts_the_body_is_refused(schema: Any, arguments: Any, headers: Any) -> None:
    assert said(schema, arguments, *headers) == HEADER_MISMATCH


@pytest.mark.parametrize(
    "schema",
    [
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": "two words"}},
        {"a": {"type": "string", "x-mcp-header": 1}},
        {**REGION, "other": {"type": "string", "x-mcp-header": "REGION"}},
        {"type": "object", "allOf": [{"properties": REGION}], "properties": {}},
        {"type": "object", "x-mcp-header": "Root"},
    ],
)
def test_a_declaration_that_the_protocol_rules_out_asks_for_nothing(schema: Any) -> None:
    assert said(schema, {"a": "x", "region": "eu"}) is None
