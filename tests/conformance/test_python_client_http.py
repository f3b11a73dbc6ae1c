"""The official Python client over HTTP, in each of its modes, in front of servers of either era."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from sdk_client import Heard, expect_fake, text_of

from perdure.testing.http_client import ServeProcess
from testbed import MODERN, Bed, Server

MODES = ("legacy", "auto", MODERN)
ASKED = {"sampling/createMessage": "sampled", "elicitation/create": "Ada", "roots/list": "file:///work"}

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.parametrize("mode", MODES),
]
either_era = pytest.mark.parametrize("fake", ["handshake", "modern"], indirect=True)


@pytest.fixture
def fake(bed: Bed, request: pytest.FixtureRequest) -> Server:
    return bed.fake(f"--era={getattr(request, 'param', 'both')}", name="s")


@pytest.fixture
def served(bed: Bed, fake: Server) -> Iterator[ServeProcess]:
    process = ServeProcess(bed.root, "--mount", fake.mount)
    yield process
    assert process.stop() == 0


@asynccontextmanager
async def connected(served: ServeProcess, mode: str, heard: Heard) -> AsyncIterator[Client]:
    options: dict[str, Any] = {"mode": mode, "read_timeout_seconds": 20, "log_level": "info"}
    async with Client(
        f"http://127.0.0.1:{served.port}/mcp",
        message_handler=heard.on_message,
        logging_callback=heard.on_log,
        elicitation_callback=heard.elicit,
        sampling_callback=heard.sample,
        list_roots_callback=heard.roots,
        **options,
    ) as client:
        yield client


@either_era
async def test_everything_a_server_offers_is_there_and_works(served: ServeProcess, mode: str) -> None:
    heard = Heard()
    async with connected(served, mode, heard) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else MODERN)
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"safe_write", "set_state", "health"} <= set(names)
        resources = [str(found.uri) for found in (await client.list_resources()).resources]
        await expect_fake(client, heard, resources)


@pytest.mark.thorough
@either_era
@pytest.mark.parametrize("method", ASKED)
async def test_the_clients_callbacks_answer_what_a_server_asks(
    served: ServeProcess, mode: str, method: str
) -> None:
    async with connected(served, mode, Heard()) as client:
        result = await client.call_tool("s__ask", {"method": method, "key": "k"})
        assert ASKED[method] in text_of(result)


@pytest.mark.thorough
@either_era
async def test_what_changes_is_announced(served: ServeProcess, mode: str) -> None:
    heard = Heard()
    async with connected(served, mode, heard) as client:
        await client.list_tools()
        if mode == "legacy":
            await client.subscribe_resource("fake://a")
            await client.call_tool("s__touch_resource", {"uri": "fake://a"})
            await heard.wait("notifications/resources/updated")
            await client.call_tool("s__change_catalog", {"add": "fresh"})
            await heard.wait("notifications/tools/list_changed")
        else:
            async with client.listen(tools_list_changed=True, resource_subscriptions=["fake://a"]) as stream:
                with anyio.fail_after(60):
                    await client.call_tool("s__touch_resource", {"uri": "fake://a"})
                    assert await anext(aiter(stream)) == ResourceUpdated(uri="fake://a")
                    await client.call_tool("s__change_catalog", {"add": "fresh"})
                    assert isinstance(await anext(aiter(stream)), ToolsListChanged)
        assert "s__fresh" in [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]


@pytest.mark.thorough
async def test_a_log_message_reaches_the_clients_callback(served: ServeProcess, mode: str) -> None:
    heard = Heard()
    async with connected(served, mode, heard) as client:
        await client.list_tools()
        if mode == "legacy":
            await client.set_logging_level("info")
        await client.call_tool("s__log", {"level": "warning", "data": "careful"})
        await heard.wait("notifications/message")
    assert heard.logged == [("warning", "careful")]


@pytest.mark.thorough
async def test_a_call_lost_with_its_server_is_an_error_and_the_next_call_works(
    served: ServeProcess, fake: Server, mode: str
) -> None:
    async with connected(served, mode, Heard()) as client:
        await client.list_tools()
        with pytest.raises(MCPError) as lost:
            await client.call_tool("s__effect", {"key": "k", "crash": "after", "times": 1})
        assert (lost.value.code, lost.value.error.data["outcome"]) == (-31094, "unknown")
        replayed = await client.call_tool("s__read_effect", {"key": "r", "crash": "after", "times": 1})
        assert (replayed.structured_content or {})["key"] == "r"
        assert fake.dispatches == ["effect k", "read_effect r", "read_effect r"]


@pytest.mark.thorough
async def test_a_client_goes_on_when_perdure_itself_is_killed_and_started_again(
    served: ServeProcess, mode: str
) -> None:
    async with connected(served, mode, Heard()) as client:
        assert text_of(await client.call_tool("s__echo", {"text": "here"})) == "here"
        await anyio.to_thread.run_sync(served.restart)
        assert text_of(await client.call_tool("s__echo", {"text": "still here"})) == "still here"
