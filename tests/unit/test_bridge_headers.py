"""The headers that a bridge sends, and the tools that it leaves out of a list."""

from __future__ import annotations

from typing import Any

from mcp_types import jsonrpc_message_adapter

from perdure.bridge.headers import RequestHeaders
from perdure.testing.raw_client import envelope


def message(**members: Any) -> Any:
    return jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **members}, by_name=False)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def listed(headers: RequestHeaders, *tools: dict[str, Any]) -> list[str]:
    """The tools that are left of a list of the 2026 era."""
    headers.of(message(id=1, method="tools/list", params=envelope()))
    answer = message(id=1, result={"tools": list(tools)})
    headers.read_answer(answer)
    return [one["name"] for one in answer.result["tools"]]


def call(name: str, **arguments: Any) -> Any:
    return message(id=2, method="tools/call", params=envelope({"name": name, "arguments": arguments}))


def test_the_handshake_era_sends_the_version_that_was_negotiated_and_nothing_else() -> None:
    headers = RequestHeaders(print)
    assert headers.of(message(id=1, method="initialize", params={"protocolVersion": "2025-11-25"})) == {}
    headers.read_answer(message(id=1, result={"protocolVersion": "2025-06-18"}))
    named = message(id=2, method="tools/call", params={"name": "look"})
    assert headers.of(named) == {"mcp-protocol-version": "2025-06-18"}


def test_a_2026_request_says_its_method_and_what_it_names() -> None:
    assert RequestHeaders(print).of(call("look")) == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "look",
    }


def test_a_notification_of_the_2026_era_says_its_method() -> None:
    headers = RequestHeaders(print)
    headers.of(call("look"))
    assert headers.of(message(method="notifications/x/ping"))["mcp-method"] == "notifications/x/ping"


def test_an_argument_that_its_tool_designates_is_sent_as_a_header() -> None:
    headers = RequestHeaders(print)
    assert listed(headers, tool("look", region={"type": "string", "x-mcp-header": "Region"})) == ["look"]
    sent = headers.of(call("look", region="us west", query="secret"))
    assert sent["Mcp-Param-Region"] == "us west"
    assert "secret" not in sent.values()
    assert headers.of(call("look", region="Køln"))["Mcp-Param-Region"].startswith("=?base64?")
    assert "Mcp-Param-Region" not in headers.of(call("look", region=None))
    assert "Mcp-Param-Region" not in headers.of(call("other", region="us west"))


def test_a_tool_whose_designation_is_not_valid_is_left_out_and_reported() -> None:
    said: list[str] = []
    bad = tool("bad", region={"type": "object", "x-mcp-header": "Region"})
    assert listed(RequestHeaders(said.append), tool("good"), bad) == ["good"]
    assert len(said) == 1
    assert "'bad' is left out" in said[0]


def test_a_list_of_the_handshake_era_is_left_alone() -> None:
    headers = RequestHeaders(print)
    headers.of(message(id=1, method="tools/list"))
    answer = message(id=1, result={"tools": [tool("bad", region={"type": "null", "x-mcp-header": ""})]})
    headers.read_answer(answer)
    assert [one["name"] for one in answer.result["tools"]] == ["bad"]
