"""The answer of each MCP method to a caller: results as bytes, refusals as values, no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from perdure.present.result import answer, failure
from perdure.protocol import eras, frames
from perdure.protocol.calls import Done
from perdure.protocol.envelope import Envelope
from perdure.protocol.instructions import instructions
from perdure.protocol.replay import SafeToRetry, StillUnknown
from perdure.protocol.tools import View
from perdure.surfaces.port import Tool
from perdure.worker.call import ToolCall, placed
from perdure.worker.context import Context, Running
from perdure.worker.diagnostics import Diagnostics
from perdure.worker.prompts import PROMPTS
from perdure.worker.session import Asked, Refusal, Session, discovery
from perdure.worker.tool_table import ToolTable

Answer = bytes | Refusal

UNKNOWN_STATUS: Final = b'{"status":"unknown"}'

_encode = msgspec.json.encode


class Methods:
    """Answers from the tool table. Lists are encoded once: they do not change while the worker runs."""

    def __init__(
        self,
        tools: ToolTable,
        session: Session,
        view: View,
        roots: tuple[str, ...],
        diagnostics: Diagnostics,
    ) -> None:
        self._tools = tools
        self._session = session
        self._view = view
        self._roots = roots
        self._diagnostics = diagnostics
        self._lists = {
            "tools/list": _encode({"tools": tools.tool_definitions()}),
            "resources/list": _encode({"resources": tools.resource_definitions()}),
            "resources/templates/list": b'{"resourceTemplates":[]}',
            "prompts/list": _encode({"prompts": [one.definition() for one in PROMPTS.values()]}),
        }
        self._instructions = instructions([tool.spec.name for tool in tools], workspace=next(iter(roots), ""))

    def immediate(self, asked: Asked) -> Answer | None:
        """The answer to a method that needs no work, or None."""
        match asked.method:
            case "initialize":
                return _encode(self._session.initialize(asked, self._instructions))
            case "server/discover":
                return _encode(discovery(self._instructions))
            case "ping":
                return b"{}"
            case "logging/setLevel":
                return self._set_level(asked)
            case "prompts/get":
                return _prompt(asked)
            case "completion/complete":
                return b'{"completion":{"values":[],"total":0,"hasMore":false}}'
            case method if (listing := self._lists.get(method)) is not None:
                cursor = asked.params.get("cursor")
                if cursor is None or bytes(cursor) == b"null":
                    return listing
                return Refusal(
                    frames.INVALID_PARAMS,
                    "no cursor was given out: every list is one page. Leave cursor out.",
                )
            case _:
                return None

    def tool(self, asked: Asked) -> Tool | None:
        name = asked.text("name")
        return self._tools.tool(name) if name is not None else None

    def describe_unknown(self, asked: Asked) -> str:
        """The message for an unknown tool name, with the most similar one."""
        from perdure.protocol.unknown_tools import describe_unknown

        name = asked.text("name")
        if name is None:
            return "tools/call needs name, a string."
        return describe_unknown(name, [tool.spec.name for tool in self._tools])

    def call(self, tool: Tool, key: str | None, asked: Asked, running: Running) -> ToolCall:
        """The call of a tool. An error inside it becomes a result, never a JSON-RPC error."""

        def context(view: View) -> Context:
            return Context(
                running,
                tool=tool.spec.name,
                view=view,
                invocation_key=key,
                age_s=asked.age_s(),
                client=asked.client,
                session=asked.session,
                process=asked.process,
                progress_token=asked.meta_id("progressToken"),
                log_level=asked.log_level if asked.log_level in eras.LOG_LEVELS else None,
            )

        return ToolCall(
            tool,
            asked.text("name") or tool.spec.name,
            asked.params.get("arguments"),
            default=self._view,
            roots=self._roots,
            context=context,
            diagnostics=self._diagnostics,
            disabled_groups=asked.disabled_groups,
        )

    def probe(self, asked: Asked, is_running: Callable[[str], bool]) -> Answer:
        """The outcome of the call with this key. It is unknown while the call runs here."""
        key, name = asked.text("key"), asked.text("tool")
        if key is None or name is None:
            return Refusal(frames.INVALID_PARAMS, "key and tool must be strings.")
        tool = self._tools.tool(name)
        if tool is None or is_running(key):
            return UNKNOWN_STATUS
        match self._tools.probe(name, key):
            case Done(Envelope() as envelope, view):
                return _encode(
                    {"status": "done", "result": failure(placed(envelope, name, {}), view or self._view)}
                )
            case Done(payload, view):
                result = answer(payload, tool.shape, view or self._view, name, {})
                return _encode({"status": "done", "result": result})
            case SafeToRetry():
                return b'{"status":"absent"}'
            case StillUnknown():
                return UNKNOWN_STATUS

    def read(self, asked: Asked) -> Answer:
        uri = asked.text("uri")
        resource = self._tools.resource(uri) if uri is not None else None
        if resource is None:
            # 2026-07-28 retired the handshake era's own code for this.
            code = frames.INVALID_PARAMS if asked.era == "modern" else eras.RESOURCE_NOT_FOUND
            message = f"no resource {(uri or '')[:200]} here: resources/list names what there is."
            return Refusal(code, message, {"uri": uri})
        content = {"uri": resource.uri, "mimeType": resource.mime_type, "text": resource.read()}
        return _encode({"contents": [content]})

    def _set_level(self, asked: Asked) -> Answer:
        level = asked.text("level")
        if level not in eras.LOG_LEVELS:
            return Refusal(frames.INVALID_PARAMS, f"level must be one of {', '.join(eras.LOG_LEVELS)}.")
        self._session.log_level = level
        return b"{}"


def _prompt(asked: Asked) -> Answer:
    name = asked.text("name") or ""
    if (prompt := PROMPTS.get(name)) is None:
        return Refusal(
            frames.INVALID_PARAMS, f"there is no prompt {name[:64]}; there are {', '.join(PROMPTS)}"
        )
    try:
        arguments = msgspec.json.decode(asked.params.get("arguments", b"{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return Refusal(frames.INVALID_PARAMS, "the arguments of a prompt must be strings")
    if unknown := sorted(arguments.keys() - {prompt.argument}):
        return Refusal(
            frames.INVALID_PARAMS,
            f"{name} has no argument {unknown[0][:64]}; it takes {prompt.argument}",
        )
    return _encode(prompt.messages(arguments))
