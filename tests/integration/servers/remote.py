"""A remote MCP server that wants a bearer token: `python remote.py TRANSPORT TOKEN [PORT]`; prints its port."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("remote")


@server.tool(annotations={"readOnlyHint": True})
def shout(text: str) -> str:
    """The text in capitals."""
    return text.upper()


@server.tool()
def who() -> int:
    """The process that answers."""
    return os.getpid()


def guarded(app: Any, token: str) -> Any:
    async def checked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.lower(): value for name, value in scope["headers"]}
            if headers.get(b"authorization") != f"Bearer {token}".encode():
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await app(scope, receive, send)

    return checked


def main() -> None:
    transport, token = sys.argv[1:3]
    app = server.streamable_http_app() if transport == "streamable-http" else server.sse_app()
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(guarded(app, token), log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main()
