"""The echo tool on the official SDK's own HTTP server, with nothing in front of it.

python echo_http.py PORT
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("echo", log_level="ERROR")


@server.tool()
def echo(text: str) -> str:
    """Answer with the text it was given."""
    return text


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
