"""The official Python client, in each of its modes, in front of servers of either era and of either SDK level."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from sdk_client import Heard, expect_fake, mount_row, text_of

from testbed import FULL, MODERN, Bed, Server

SERVERS = Path(__file__).parents[1] / "integration" / "servers"
MODES = ("legacy", "auto", MODERN)
KINDS = ("fake-handshake", "fake-modern", "high-level", "low-level", "low-level-modern")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


def combined(*kinds: str) -> Any:
    """Every kind in every mode; an SDK server starts slowly, so for it the pinned mode stands for `auto`."""
    pairs = [(kind, mode) for kind in kinds for mode in MODES if kind.startswith("fake") or mode != "auto"]
    return pytest.mark.parametrize(("kind", "mode"), pairs)


def server_of(bed: Bed, kind: str, name: str = "s") -> Server:
    match kind:
        case "fake-handshake" | "fake-modern":
            return bed.fake(f"--era={kind[5:]}", name=name)
        case "high-level":
            return Server(name, (sys.executable, str(SERVERS / "high_level.py")), bed.root)
        case _:
            options = ["--modern-only"] if kind.endswith("modern") else []
            return Server(name, (sys.executable, str(SERVERS / "low_level.py"), *options), bed.root)


def connect(
    bed: Bed, mode: str, heard: Heard, *servers: Server, command: list[str] | None = None
) -> AbstractAsyncContextManager[Client]:
    bed.settings("[limits]\nlist_grace_s = 20\n")  # an SDK server on a busy machine is slow to start
    argv = command or bed.command(*servers)
    parameters = StdioServerParameters(
        command=argv[0], args=argv[1:], env=bed.environ, cwd=str(bed.workspace)
    )
    return Client(
        parameters,
        mode=mode,
        read_timeout_seconds=20,
        message_handler=heard.on_message,
        logging_callback=heard.on_log,
        log_level="info",
        elicitation_callback=heard.elicit,
        sampling_callback=heard.sample,
        list_roots_callback=heard.roots,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
async def test_everything_a_server_offers_is_there_and_works(bed: Bed, kind: str, mode: str) -> None:
    heard = Heard()
    async with connect(bed, mode, heard, server_of(bed, kind)) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else MODERN)
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"health", "telemetry", "mounts"} <= set(names)
        resources = [str(found.uri) for found in (await client.list_resources()).resources]
        if kind.startswith("fake"):
            assert sum(name.startswith("s__") for name in names) >= 20
            await expect_fake(client, heard, resources)
        else:
            assert {"s__add", "s__count", "s__ask", "s__wait", "s__grow"} <= set(names)
            await expect_sdk(client, heard, resources)
        if kind == "high-level":
            await expect_high_level(client)


async def expect_sdk(client: Client, heard: Heard, resources: list[str]) -> None:
    result = await client.call_tool("s__add", {"a": 2, "b": 3})
    assert result.structured_content == {"total": 5}
    result = await client.call_tool("s__count", {"n": 3}, progress_callback=heard.on_progress)
    assert text_of(result) == "counted to 3"
    assert heard.progress == [1, 2, 3]
    uri = next(uri for uri in resources if not uri.startswith(("perdure:", "checkpoint:")))
    assert (await client.read_resource(uri)).contents[0].uri == uri
    assert text_of(await client.call_tool("s__ask")) == "accept: Ada"


async def expect_high_level(client: Client) -> None:
    failed = await client.call_tool("s__fail")
    assert failed.is_error
    assert "it failed" in text_of(failed)
    (template,) = [
        t for t in (await client.list_resource_templates()).resource_templates if "memo" in t.uri_template
    ]
    assert template.uri_template == "memo://day/{day}"
    (read,) = (await client.read_resource("memo://day/monday")).contents
    assert isinstance(read, types.TextResourceContents)
    assert read.text == "memo of monday"
    prompt = await client.get_prompt("s__greet", {"who": "bob"})
    assert getattr(prompt.messages[0].content, "text", "") == "Hello, bob!"
    assert text_of(await client.call_tool("s__sample")) == "sampled"
    assert text_of(await client.call_tool("s__roots")) == "file:///work"


@pytest.mark.thorough
@combined("fake-handshake", "fake-modern", "high-level", "low-level-modern")
async def test_a_cancelled_call_is_over_and_a_changed_list_is_announced(
    bed: Bed, kind: str, mode: str
) -> None:
    heard = Heard()
    is_fake = kind.startswith("fake")
    async with connect(bed, mode, heard, server_of(bed, kind)) as client:
        await client.list_tools()
        with anyio.move_on_after(0.1) as scope:
            await client.call_tool("s__hang" if is_fake else "s__wait")
        assert scope.cancelled_caught
        health = (await client.call_tool("health", dict(FULL))).structured_content or {}
        assert health["pending"] == 0

        async def grow() -> None:
            if is_fake:
                await client.call_tool("s__change_catalog", {"add": "fresh"})
            else:
                await client.call_tool("s__grow", {"name": "fresh"})

        if mode == "legacy":
            await grow()
            await heard.wait("notifications/tools/list_changed")
        else:
            async with client.listen(tools_list_changed=True) as stream:
                await grow()
                with anyio.fail_after(60):
                    assert isinstance(await anext(aiter(stream)), ToolsListChanged)
        assert "s__fresh" in [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]


@pytest.mark.thorough
@combined("fake-handshake", "fake-modern", "low-level", "low-level-modern")
async def test_a_subscription_outlives_the_server_it_was_made_at(bed: Bed, kind: str, mode: str) -> None:
    heard = Heard()
    is_fake = kind.startswith("fake")
    uri, touch = ("fake://a", "s__touch_resource") if is_fake else ("note://one", "s__touch")
    async with connect(bed, mode, heard, server_of(bed, kind)) as client:
        await client.list_tools()

        async def lose_server() -> None:
            row = await mount_row(client)
            os.kill(row["pid"], signal.SIGKILL)
            with anyio.fail_after(60):
                while (await mount_row(client))["state"] != "ready" or (await mount_row(client))[
                    "pid"
                ] == row["pid"]:
                    await anyio.sleep(0.01)

        if mode == "legacy":
            await client.subscribe_resource(uri)
            await lose_server()
            await client.call_tool(touch, {"uri": uri})
            await heard.wait("notifications/resources/updated")
        else:
            async with client.listen(resource_subscriptions=[uri]) as stream:
                await lose_server()
                await client.call_tool(touch, {"uri": uri})
                with anyio.fail_after(60):
                    assert await anext(aiter(stream)) == ResourceUpdated(uri=uri)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_lost_with_its_server_is_an_error_and_the_next_call_works(bed: Bed, mode: str) -> None:
    fake = bed.fake(name="s")
    async with connect(bed, mode, Heard(), fake) as client:
        await client.list_tools()
        with pytest.raises(MCPError) as lost:
            await client.call_tool("s__effect", {"key": "k", "crash": "after", "times": 1})
        assert lost.value.code == -31094
        assert lost.value.error.data["outcome"] == "unknown"
        replayed = await client.call_tool("s__read_effect", {"key": "r", "crash": "after", "times": 1})
        assert (replayed.structured_content or {})["key"] == "r"
        assert fake.dispatches == ["effect k", "read_effect r", "read_effect r"]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_the_clients_callbacks_answer_a_fake_of_either_era(bed: Bed, mode: str, method: str) -> None:
    servers = [bed.fake("--era=handshake", name="old"), bed.fake("--era=modern", name="new")]
    answers: dict[str, str] = {}
    async with connect(bed, mode, Heard(), *servers) as client:

        async def ask(name: str) -> None:
            result = await client.call_tool(f"{name}__ask", {"method": method, "key": name})
            answers[name] = text_of(result)

        async with anyio.create_task_group() as both:
            both.start_soon(ask, "old")
            both.start_soon(ask, "new")
    expected = {
        "sampling/createMessage": "sampled",
        "elicitation/create": "Ada",
        "roots/list": "file:///work",
    }
    assert expected[method] in answers["old"]
    assert expected[method] in answers["new"]


@pytest.mark.thorough
@combined("fake-handshake", "fake-modern", "high-level")
async def test_a_log_message_reaches_the_clients_callback(bed: Bed, mode: str, kind: str) -> None:
    heard = Heard()
    async with connect(bed, mode, heard, server_of(bed, kind)) as client:
        await client.list_tools()
        if mode == "legacy":
            await client.set_logging_level("info")
        if kind == "high-level":
            await client.call_tool("s__say", {"level": "warning", "text": "careful"})
        else:
            await client.call_tool("s__log", {"level": "warning", "data": "careful"})
        await heard.wait("notifications/message")
    assert heard.logged == [("warning", "careful")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "mode"), [("high-level", "legacy"), ("low-level", "legacy"), ("low-level-modern", "auto")]
)
async def test_a_wrapped_sdk_server_shows_itself_as_it_is(bed: Bed, mode: str, kind: str) -> None:
    server = server_of(bed, kind)
    async with connect(bed, mode, Heard(), command=list(server.argv)) as direct:
        info, instructions = direct.server_info, direct.instructions
        tools = (await direct.list_tools()).tools
    async with connect(bed, mode, Heard(), command=bed.wrap_command(server)) as client:
        assert client.server_info == info
        assert client.instructions == instructions
        assert (await client.list_tools()).tools == tools
        result = await client.call_tool("add", {"a": 1, "b": 1})
        assert result.structured_content == {"total": 2}
