"""A FastMCP proxy over one stdio server, served over HTTP, run by the interpreter of FastMCP's own environment.

    python fastmcp_http.py PORT COMMAND [ARGS...]

One client, connected before the proxy serves: the form with the least to do for each call.
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(port: int, command: str, args: list[str]) -> None:
    transport = StdioTransport(command=command, args=args, keep_alive=True)
    async with Client(transport, mode="legacy") as client:
        proxy = create_proxy(client)
        await proxy.run_async("http", show_banner=False, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
