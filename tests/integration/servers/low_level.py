"""A server on the official SDK's low-level API, with subscriptions; `--modern-only` refuses the handshake."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

warnings.simplefilter("ignore", MCPDeprecationWarning)

bus = InMemorySubscriptionBus()
subscribed: set[str] = set()
grown: list[str] = []
QUESTION = types.ElicitRequest(
    params=types.ElicitRequestFormParams(
        message="Who is there?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)


def tool(name: str, /, **schema: Any) -> types.Tool:
    return types.Tool(
        name=name,
        description=f"The tool {name}",
        input_schema={"type": "object", "properties": schema},
        annotations=types.ToolAnnotations(read_only_hint=name == "add"),
    )


def text(words: str, **structured: Any) -> types.CallToolResult:
    content = [types.TextContent(type="text", text=words)]
    return types.CallToolResult(content=content, structured_content=structured or None)


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    known = [
        tool("add", a={"type": "integer"}, b={"type": "integer"}),
        tool("count", n={"type": "integer"}),
        tool("ask"),
        tool("wait"),
        tool("touch", uri={"type": "string"}),
        tool("grow", name={"type": "string"}),
    ]
    return types.ListToolsResult(tools=known + [tool(name) for name in grown])


async def call_tool(
    ctx: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "add":
            return text(str(given["a"] + given["b"]), total=given["a"] + given["b"])
        case "count":
            for step in range(1, given["n"] + 1):
                await ctx.session.report_progress(step, given["n"])
            return text(f"counted to {given['n']}")
        case "ask":
            return await ask(ctx, params)
        case "wait":
            await anyio.sleep(3600)
            return text("never")
        case "touch":
            await bus.publish(ResourceUpdated(uri=given["uri"]))
            if given["uri"] in subscribed:
                await ctx.session.send_resource_updated(given["uri"])
            return text("touched")
        case "grow":
            grown.append(given["name"])
            await bus.publish(ToolsListChanged())
            await ctx.session.send_tool_list_changed()
            return text("grown")
        case _:
            return text("grown tool")


async def ask(
    ctx: Any, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if params.input_responses is None:
            return types.InputRequiredResult(input_requests={"who": QUESTION}, request_state="asked")
        answer = params.input_responses["who"]
    else:
        answer = await ctx.session.elicit(QUESTION.params.message, QUESTION.params.requested_schema)
    content = getattr(answer, "content", None) or {}
    return text(f"{getattr(answer, 'action', '?')}: {content.get('name')}")


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[types.Resource(uri="note://one", name="one")])


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=params.uri, text=f"text of {params.uri}")]
    )


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


server = Server(
    "low-level",
    version="0.0.1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_subscriptions_listen=ListenHandler(bus),
)


async def main(*, modern_only: bool) -> None:
    async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
        given, kept = anyio.create_memory_object_stream[SessionMessage | Exception](64)

        async def filtered() -> None:
            async with given:
                async for message in read:
                    if modern_only and is_initialize(message):
                        await write.send(refusal(message.message.id))
                    else:
                        await given.send(message)

        tasks.start_soon(filtered)
        await server.run(kept, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def is_initialize(message: Any) -> bool:
    return isinstance(message, SessionMessage) and getattr(message.message, "method", "") == "initialize"


def refusal(identity: types.RequestId) -> SessionMessage:
    data = {"supported": list(MODERN_PROTOCOL_VERSIONS), "requested": ""}
    error = types.ErrorData(code=-32022, message="the handshake is not accepted", data=data)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=identity, error=error))


if __name__ == "__main__":
    anyio.run(lambda: main(modern_only="--modern-only" in sys.argv))
