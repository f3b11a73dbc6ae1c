"""A FastMCP proxy over one stdio server, run by the interpreter of FastMCP's own environment.

    python fastmcp_proxy.py SESSION COMMAND [ARGS...]

The backend process is kept alive in every form. SESSION says what is kept besides it:

    connected  one client, connected before the proxy serves: one backend session for all calls
    stateful   one client per connection of the proxy (`StatefulProxyClient.new_stateful`)
    default    what `create_proxy` does with a transport: a new client per request on the same process
"""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from fastmcp.server.providers.proxy import FastMCPProxy, StatefulProxyClient


async def main(session: str, command: str, args: list[str]) -> None:
    transport = StdioTransport(command=command, args=args, keep_alive=True)
    match session:
        case "connected":
            async with Client(transport, mode="legacy") as client:
                await create_proxy(client).run_async("stdio", show_banner=False)
        case "stateful":
            factory = StatefulProxyClient(transport, mode="legacy").new_stateful
            await FastMCPProxy(client_factory=factory).run_async("stdio", show_banner=False)
        case "default":
            await create_proxy(transport).run_async("stdio", show_banner=False)
        case _:
            raise SystemExit(f"no session {session}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
