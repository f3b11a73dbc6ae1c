"""`perdure demo`: a client, the host, and a server that is killed in mid-call; what each call is told."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.testing.raw_client import RawClient

ANSWER_S = 30.0


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import Parser

    return Parser(
        prog="perdure demo",
        description="A guided run in a temporary workspace: calls in flight, kill -9, the answers, a write, undo.",
    )


def main(argv: list[str]) -> int:
    parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as workspace:
        story = Story(workspace)
        story.tell()
        return 0 if story.held else 1


class Story:
    """What is shown, and whether every promise held while it was shown."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.effects = os.path.join(workspace, "effects.log")
        self.held = True

    def tell(self) -> None:
        from perdure.testing.raw_client import RawClient

        server = [sys.executable, "-P", "-m", "perdure.testing.fake_server", "--effects", self.effects]
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", self.workspace]
        command += ["--mount", f"shop={shlex.join(server)}"]
        env = {**os.environ, "PERDURE_HOME": os.path.join(self.workspace, ".home")}
        self.say("An MCP client starts `perdure run --mount shop='…'`: one host, one server behind it.")
        began = time.perf_counter()
        with RawClient(command, env) as client:
            client.initialize(timeout=ANSWER_S)
            took = (time.perf_counter() - began) * 1000
            tools = client.request("tools/list", timeout=ANSWER_S)["result"]["tools"]
            mounted = [tool for tool in tools if tool["name"].startswith("shop__")]
            self.show(f"connected in {took:.0f} ms, {len(tools)} tools, {len(mounted)} of them from shop")
            self._lost_read(client)
            self._lost_effect(client)
            self._write_and_undo(client)
            self._goes_on(client)

    def _lost_read(self, client: RawClient) -> None:
        self.say("A read is in flight. The server is killed with kill -9. The tool says it only reads,")
        self.say("so the host starts the server again and asks once more; the client just gets its answer.")
        health = _call(client, "health", {"render": "json", "detail": "full"})
        pid = next(m["pid"] for m in health["structuredContent"]["mounts"] if m["name"] == "shop")
        request = client.start_call("shop__echo", {"text": "seven in stock", "delay_ms": 300})
        time.sleep(0.1)
        self.show(f"kill -9 {pid}")
        os.kill(pid, signal.SIGKILL)
        began = time.perf_counter()
        result = client.wait(request, ANSWER_S).get("result") or {}
        took = (time.perf_counter() - began) * 1000
        outcome = (result.get("_meta") or {}).get("perdure/outcome") or {}
        text = _text(result)
        self.show(
            f"answer: {text!r}  {outcome.get('outcome')} after {outcome.get('attempts')} attempts, {took:.0f} ms"
        )
        self.check(text == "seven in stock" and outcome.get("outcome") == "replayed", "the read was replayed")

    def _lost_effect(self, client: RawClient) -> None:
        self.say("Now a call that changes something, with no word on whether it may be repeated. The server")
        self.say("does it and dies before it can answer. Nobody may guess here, so the host does not:")
        answer = client.call("shop__effect", {"key": "order-66", "crash": "after", "times": 1}, ANSWER_S)
        error = answer.get("error") or {}
        data = error.get("data") or {}
        known = ", ".join(
            f"{key} {data.get(key)}" for key in ("class", "code", "outcome", "retry", "attempts")
        )
        self.show(f"error {error.get('code')} {error.get('message')}: {known}")
        self.check(data.get("outcome") == "unknown" and data.get("retry") == "never", "the answer is honest")
        effects = Path(self.effects).read_text(encoding="utf-8").splitlines()
        count = sum("order-66" in line for line in effects)
        self.show(f"what really happened: order-66 was placed {count} time")
        self.check(count == 1, "nothing was done twice")

    def _write_and_undo(self, client: RawClient) -> None:
        self.say("A file is written, overwritten, and the last change is taken back:")
        file = Path(self.workspace, "notes.md")
        self.show(_text(_call(client, "safe_write", {"path": "notes.md", "content": "kept\n"})))
        overwrite = {"path": "notes.md", "content": "a mistake\n", "mode": "overwrite"}
        self.show(_text(_call(client, "safe_write", overwrite)))
        self.show(_text(_call(client, "undo", {})))
        self.check(file.read_text(encoding="utf-8") == "kept\n", "the file is as it was before")

    def _goes_on(self, client: RawClient) -> None:
        self.say("The session never closed. The next call works, and health knows what happened:")
        self.check(
            _text(_call(client, "shop__echo", {"text": "still here"})) == "still here", "the next call works"
        )
        self.show(_text(_call(client, "health", {"detail": "full"})))
        print()
        print("every promise held" if self.held else "A PROMISE WAS BROKEN")

    def say(self, words: str) -> None:
        print(words)

    def show(self, words: str) -> None:
        print("\n".join(f"    {line}" for line in words.splitlines()))

    def check(self, held: bool, promise: str) -> None:
        self.held = self.held and held
        print(f"    {'ok' if held else 'BROKEN'}: {promise}\n")


def _call(client: RawClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = client.call(tool, arguments, ANSWER_S).get("result") or {}
    return result


def _text(result: dict[str, Any]) -> str:
    return "\n".join(part.get("text", "") for part in result.get("content", [])) or "no answer"
