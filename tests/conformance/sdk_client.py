"""A client on the official Python SDK that can be asked anything, and what it must find at a fake server."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types
from mcp import Client

from testbed import FULL

PERSON = {"name": "Ada"}


class Heard:
    """The callbacks of a client that can be asked anything, and what it was told."""

    def __init__(self) -> None:
        self.notifications: list[str] = []
        self.logged: list[Any] = []
        self.progress: list[float] = []
        self._came = anyio.Event()

    async def on_message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        if method is not None:
            self.notifications.append(method)
            self._came.set()

    async def on_log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append((params.level, params.data))

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)

    async def wait(self, method: str) -> None:
        with anyio.fail_after(60):
            while method not in self.notifications:
                await self._came.wait()
                self._came = anyio.Event()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=PERSON)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="sampled")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///work")])


def text_of(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


async def mount_row(client: Client, name: str = "s") -> dict[str, Any]:
    result = await client.call_tool("health", dict(FULL))
    assert result.structured_content is not None
    found: dict[str, Any] = next(r for r in result.structured_content["mounts"] if r["name"] == name)
    return found


async def expect_fake(client: Client, heard: Heard, resources: list[str]) -> None:
    result = await client.call_tool("s__echo", {"text": "hi"})
    assert (text_of(result), result.structured_content) == ("hi", {"text": "hi"})
    await client.call_tool("s__progress", {"n": 3}, progress_callback=heard.on_progress)
    assert heard.progress == [1, 2, 3]
    assert {"fake://a", "fake://b"} <= set(resources)
    (read,) = (await client.read_resource("fake://item/7")).contents
    assert isinstance(read, types.TextResourceContents)
    assert read.text == "fake://item/7 revision 0"
    assert [p.name for p in (await client.list_prompts()).prompts][-1] == "s__greet"
    prompt = await client.get_prompt("s__greet", {"who": "bob"})
    assert getattr(prompt.messages[0].content, "text", "") == "greet bob"
    reference = types.PromptReference(type="ref/prompt", name="s__greet")
    completed = await client.complete(reference, {"name": "who", "value": "b"})
    assert completed.completion.values == ["bob"]
