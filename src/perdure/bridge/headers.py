"""The HTTP headers that go with a request to a remote server: its version, and in the 2026 era what its body says.

There a tool can designate arguments that are sent as headers too (`x-mcp-header`). Which ones, is learned from the
lists that pass; a tool whose designation is not valid must not be used, and is left out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcp.shared import inbound
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.protocol.eras import MODERN_TASK_METHODS

_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_LIST = "tools/list"
_OPENING = "initialize"
_NAMED = {**inbound.NAME_BEARING_METHODS, **dict.fromkeys(MODERN_TASK_METHODS, "taskId")}


class RequestHeaders:
    """What has to be known of one connection to say them. `report` is told of each tool that is left out."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._version = ""
        self._asked: dict[object, str] = {}
        self._designated: dict[str, Mapping[tuple[str, ...], str]] = {}

    def of(self, message: Any) -> dict[str, str]:
        """The headers of a message to the server."""
        method = getattr(message, "method", "")
        params = getattr(message, "params", None) or {}
        identity = getattr(message, "id", None)
        asked_in = (params.get("_meta") or {}).get(_META_VERSION)
        if isinstance(asked_in, str):
            self._version = asked_in
            if method == _LIST:
                self._asked[identity] = method
        elif method == _OPENING:
            self._version = ""
            self._asked[identity] = method
        if self._version not in MODERN_PROTOCOL_VERSIONS:
            return {inbound.MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: self._version}
        if method:
            headers[inbound.MCP_METHOD_HEADER] = method
        name = params.get(_NAMED.get(method, ""))
        if isinstance(name, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
        if method == "tools/call" and isinstance(name, str) and isinstance(params.get("arguments"), dict):
            headers |= inbound.mcp_param_headers(self._designated.get(name, {}), params["arguments"])
        return headers

    def read_answer(self, message: Any) -> None:
        """Learn from an answer of the server; a list loses the tools that must not be used."""
        method = self._asked.pop(getattr(message, "id", None), "")
        result = getattr(message, "result", None)
        if not isinstance(result, dict):
            return
        if method == _OPENING:
            self._version = str(result.get("protocolVersion", ""))
        elif method == _LIST and isinstance(result.get("tools"), list):
            result["tools"] = [tool for tool in result["tools"] if self._can_use(tool)]

    def _can_use(self, tool: Any) -> bool:
        if not isinstance(tool, dict):
            return True
        name, schema = tool.get("name"), tool.get("inputSchema")
        if (fault := inbound.find_invalid_x_mcp_header(schema)) is not None:
            self._report(f"the tool {str(name)[:64]!r} is left out: {fault[:200]}")
            return False
        if isinstance(name, str) and (designated := inbound.x_mcp_header_map(schema)):
            self._designated[name] = designated
        return True
