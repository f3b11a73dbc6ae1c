"""`perdure demo`: the host, a real client, a server that is killed in mid-call, and what each call is told."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp import Client

MISSING = "perdure demo drives the host with the official MCP client: pip install 'perdure[demo]'"


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import Parser

    return Parser(
        prog="perdure demo",
        description="A guided run in a temporary workspace: calls in flight, kill -9, the answers, health.",
    )


def main(argv: list[str]) -> int:
    parser().parse_args(argv)
    try:
        import anyio
        import mcp  # noqa: F401
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 4
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as workspace:
        story = Story(workspace)
        anyio.run(story.tell)
        return 0 if story.held else 1


class Story:
    """What is shown, and whether every promise held while it was shown."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.effects = os.path.join(workspace, "effects.log")
        self.held = True

    async def tell(self) -> None:
        from mcp import Client, StdioServerParameters

        server = [sys.executable, "-P", "-m", "perdure.testing.fake_server", "--effects", self.effects]
        arguments = ["-P", "-m", "perdure", "run", "--workspace", self.workspace]
        arguments += ["--mount", f"shop={shlex.join(server)}"]
        env = {**os.environ, "PERDURE_HOME": os.path.join(self.workspace, ".home")}
        self.say("An MCP client starts `perdure run --mount shop='…'`: one host, one server behind it.")
        began = time.perf_counter()
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=env)
        async with Client(parameters, read_timeout_seconds=30) as client:
            took = (time.perf_counter() - began) * 1000
            tools = await client.list_tools()
            mounted = [t.name for t in tools.tools if t.name.startswith("shop__")]
            self.show(
                f"connected in {took:.0f} ms, {len(tools.tools)} tools, {len(mounted)} of them from shop"
            )
            await self._lost_read(client)
            await self._lost_effect(client)
            await self._goes_on(client)

    async def _lost_read(self, client: Client) -> None:
        self.say("A read is in flight. The server is killed with kill -9. The tool says it only reads,")
        self.say("so the host starts the server again and asks once more; the client just gets its answer.")
        result, took = await self._killed_during(
            client, "shop__echo", {"text": "seven in stock", "delay_ms": 300}
        )
        text = result.content[0].text if result is not None else "no answer"
        outcome = ((result.meta or {}).get("perdure/outcome") or {}) if result is not None else {}
        self.show(
            f"answer: {text!r}  {outcome.get('outcome')} after {outcome.get('attempts')} attempts, {took:.0f} ms"
        )
        self.check(text == "seven in stock" and outcome.get("outcome") == "replayed", "the read was replayed")

    async def _lost_effect(self, client: Client) -> None:
        from mcp import MCPError

        self.say("Now a call that changes something, with no word on whether it may be repeated. The server")
        self.say("does it and dies before it can answer. Nobody may guess here, so the host does not:")
        try:
            await client.call_tool("shop__effect", {"key": "order-66", "crash": "after", "times": 1})
            self.check(False, "the lost call was answered with an error")
        except MCPError as error:
            data: dict[str, Any] = error.error.data or {}
            known = ", ".join(
                f"{key} {data[key]}" for key in ("class", "code", "outcome", "retry", "attempts")
            )
            self.show(f"error {error.error.code}: {error.error.message}")
            self.show(f"data: {known}")
            self.check(
                data.get("outcome") == "unknown" and data.get("retry") == "never", "the answer is honest"
            )
        with open(self.effects) as file:
            done = [line for line in file if "order-66" in line]
        self.show(f"what really happened: order-66 was placed {len(done)} time")
        self.check(len(done) == 1, "nothing was done twice")

    async def _goes_on(self, client: Client) -> None:
        self.say("The session never closed. The next call works, and health knows what happened:")
        result = await client.call_tool("shop__echo", {"text": "still here"})
        self.check(result.content[0].text == "still here", "the next call works")  # type: ignore[union-attr]
        health = await client.call_tool("health", {"detail": "full"})
        self.show(health.content[0].text)  # type: ignore[union-attr]
        print()
        print("every promise held" if self.held else "A PROMISE WAS BROKEN")

    async def _killed_during(self, client: Client, tool: str, arguments: dict[str, Any]) -> tuple[Any, float]:
        import anyio

        found = await client.call_tool("health", {"render": "json", "detail": "full"})
        assert found.structured_content is not None
        pid = next(m["pid"] for m in found.structured_content["mounts"] if m["name"] == "shop")
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await client.call_tool(tool, arguments))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await anyio.sleep(0.1)
            self.show(f"kill -9 {pid}")
            os.kill(pid, signal.SIGKILL)
            began = time.perf_counter()
        return answers[0] if answers else None, (time.perf_counter() - began) * 1000

    def say(self, words: str) -> None:
        print(words)

    def show(self, words: str) -> None:
        print("\n".join(f"    {line}" for line in words.splitlines()))

    def check(self, held: bool, promise: str) -> None:
        self.held = self.held and held
        print(f"    {'ok' if held else 'BROKEN'}: {promise}\n")
