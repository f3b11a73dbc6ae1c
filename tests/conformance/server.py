"""A server with the conformance suite's fixtures on the official SDK: over stdio, or alone over HTTP with `--port`.

The SDK's own HTTP shows what the suite says of the server itself; behind `perdure serve --wrap` it must say the same.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from fixture import content, tools
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning

warnings.simplefilter("ignore", MCPDeprecationWarning)

subscribed: set[str] = set()


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


server = Server(
    "conformance-fixture",
    version="1.0.0",
    cache_hints={
        "tools/list": CacheHint(60_000, "public"),
        "prompts/list": CacheHint(60_000, "public"),
        "resources/list": CacheHint(60_000, "public"),
        "resources/templates/list": CacheHint(60_000, "public"),
        "resources/read": CacheHint(1_000, "private"),
    },
    get_tool_input_schema=tools.schema_of,
    on_list_tools=tools.list_tools,
    on_call_tool=tools.call_tool,
    on_list_resources=content.list_resources,
    on_list_resource_templates=content.list_templates,
    on_read_resource=content.read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_subscriptions_listen=ListenHandler(tools.bus),
    on_list_prompts=content.list_prompts,
    on_get_prompt=content.get_prompt,
    on_completion=content.complete,
    on_set_logging_level=set_level,
)


class Events(EventStore):
    """Every event of every stream, in order: what a client missed is sent again."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if not last_event_id.isdigit() or not 0 < int(last_event_id) <= len(self._events):
            return None
        stream = self._events[int(last_event_id) - 1][0]
        for number, (other, message) in enumerate(self._events, 1):
            if number > int(last_event_id) and other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def over_stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port: int) -> None:
    app = server.streamable_http_app(event_store=Events(), retry_interval=200)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="serve HTTP at /mcp on this port of the loopback")
    port = parser.parse_args().port
    if port is None:
        anyio.run(over_stdio)
    else:
        over_http(port)


if __name__ == "__main__":
    main()
