"""A server on the official SDK's high-level API. It speaks both eras; its first request decides which."""

from __future__ import annotations

import warnings

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import Completion, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

warnings.simplefilter("ignore", MCPDeprecationWarning)

server = MCPServer("high-level", title="High level", version="1.2.3", instructions="Adds.", log_level="ERROR")


class Sum(BaseModel):
    total: int


class Person(BaseModel):
    name: str


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def fail() -> str:
    """Fail as a tool does."""
    raise ToolError("it failed")


@server.tool()
async def count(n: int, ctx: Context) -> str:
    """Count with progress."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n, f"step {step}")
    return f"counted to {n}"


@server.tool()
async def say(level: str, text: str, ctx: Context) -> str:
    """Log a message."""
    await ctx.log(level, text)  # type: ignore[arg-type]
    return "said"


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask who is there."""
    answer = await ctx.elicit("Who is there?", Person)
    return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def sample(ctx: Context) -> str:
    """Ask the client's model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="hello?"))
    answer = await ctx.session.create_message([question], max_tokens=8)
    assert isinstance(answer.content, TextContent)
    return answer.content.text


@server.tool()
async def roots(ctx: Context) -> str:
    """Ask for the roots."""
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@server.tool()
async def wait() -> str:
    """Wait until cancelled."""
    await anyio.sleep(3600)
    return "never"


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool and announce it in both eras' ways."""
    server.add_tool(lambda: "grown", name=name, description="Grown")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


@server.resource("memo://today")
def today() -> str:
    return "nothing yet"


@server.resource("memo://day/{day}")
def day(day: str) -> str:
    return f"memo of {day}"


@server.prompt()
def greet(who: str) -> str:
    """Greet someone."""
    return f"Hello, {who}!"


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    value = getattr(argument, "value", "")
    return Completion(values=[name for name in ("ada", "alan", "grace") if name.startswith(value)])


if __name__ == "__main__":
    server.run("stdio")
