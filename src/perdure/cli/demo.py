"""`perdure demo`: what goes wrong with agents, in a temporary workspace, and what each of them is told."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.platform import signals

if TYPE_CHECKING:
    from perdure.testing.raw_client import RawClient

ANSWER_S = 30.0
MOST_LINES = 6
PLAN = "goals\n- ship\n\nnotes\n- none\n"
# A token that looks real and has no owner.
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zB9dF1hJ3lN5"
FULL = {"render": "json", "detail": "full"}


def parser() -> argparse.ArgumentParser:
    from perdure.cli.parser import Parser

    return Parser(
        prog="perdure demo",
        description="The whole story in a temporary workspace, in a few seconds: a write, kill -9 and the true answer, "
        "another agent's edit, a secret, an undo. Exit code 1 if a promise was broken.",
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
        self.folder = os.path.join(workspace, "project")
        self.home = os.path.join(workspace, "home")
        self.effects = os.path.join(workspace, "orders.log")
        self.held = True
        self._part = 0
        os.mkdir(self.folder)

    def tell(self) -> None:
        began = time.perf_counter()
        with ExitStack() as opened:
            server = [sys.executable, "-P", "-m", "perdure.testing.fake_server", "--effects", self.effects]
            ada = self._client(opened, "ada", "--mount", f"shop={shlex.join(server)}")
            ben = self._client(opened, "ben")
            print(
                "Two agents, ada and ben, each start `perdure run` in one project. ada also mounts a server, shop.\n"
            )
            self._write(ada)
            self._lost_read(ada)
            self._lost_effect(ada)
            self._two_agents(ada, ben)
            self._secret(ada)
            self._undo(ada)
        took = time.perf_counter() - began
        print(f"Every promise held, in {took:.1f} s." if self.held else "A PROMISE WAS BROKEN.")
        print("Next: `perdure install` lists the clients of this machine.")

    def _client(self, opened: ExitStack, name: str, *words: str) -> RawClient:
        from perdure.testing.raw_client import CAPABILITIES, HANDSHAKE, RawClient

        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", self.folder, *words]
        client = opened.enter_context(RawClient(command, {**os.environ, "PERDURE_HOME": self.home}))
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": HANDSHAKE, "capabilities": dict(CAPABILITIES), "clientInfo": info}
        client.request("initialize", params, timeout=ANSWER_S)
        client.notify("notifications/initialized")
        client.request("tools/list", timeout=ANSWER_S)
        return client

    # --- the parts --------------------------------------------------------------------------------------------

    def _write(self, ada: RawClient) -> None:
        self.title("A write is atomic and has a journal entry")
        self.show("ada", "safe_write plan.md", _call(ada, "safe_write", {"path": "plan.md", "content": PLAN}))
        self.check(self._text("plan.md") == PLAN, "the file is there")

    def _lost_read(self, ada: RawClient) -> None:
        self.title("kill -9 while a read runs: the client gets its answer")
        health = _call(ada, "health", FULL)
        pid = next(m["pid"] for m in health["structuredContent"]["mounts"] if m["name"] == "shop")
        request = ada.start_call("shop__echo", {"text": "seven in stock", "delay_ms": 300})
        time.sleep(0.1)
        print(f"   $ kill -9 {pid}")
        signals.send(pid, signals.KILL)
        result = ada.wait(request, ANSWER_S).get("result") or {}
        outcome = (result.get("_meta") or {}).get("perdure/outcome") or {}
        self.show("ada", "shop__echo", result)
        self.check(
            _text(result) == "seven in stock" and outcome.get("outcome") == "replayed",
            f"the server was started again and asked again: {outcome.get('attempts')} attempts",
        )

    def _lost_effect(self, ada: RawClient) -> None:
        self.title("The server dies after it placed an order: the host does not guess")
        answer = ada.call("shop__effect", {"key": "order-66", "crash": "after", "times": 1}, ANSWER_S)
        error = answer.get("error") or {}
        data = error.get("data") or {}
        self.show_text("ada", "shop__effect order-66", f"error: {error.get('message')}")
        orders = Path(self.effects).read_text(encoding="utf-8").count("order-66")
        self.check(
            data.get("outcome") == "unknown" and data.get("retry") == "never" and orders == 1,
            f"the answer is true, and order-66 was placed {orders} time",
        )

    def _two_agents(self, ada: RawClient, ben: RawClient) -> None:
        self.title("ben edits the file; ada, who has not seen that, cannot overwrite it")
        edits = [{"old": "- none", "new": "- ben was here"}]
        self.show("ben", "edit plan.md", _call(ben, "edit", {"path": "plan.md", "edits": edits}))
        overwrite = {"path": "plan.md", "content": "goals\n- ship twice\n", "mode": "overwrite"}
        refused = _call(ada, "safe_write", overwrite)
        self.show("ada", "safe_write plan.md mode=overwrite", refused)
        self.check(
            bool(refused.get("isError")) and "ben was here" in self._text("plan.md"),
            "ben's line is still there",
        )

    def _secret(self, ada: RawClient) -> None:
        self.title("A token in a file is refused, and a redacted draft is kept")
        content = f"name = demo\ntoken = {TOKEN}\n"
        refused = _call(ada, "safe_write", {"path": "app.env", "content": content, **FULL})
        envelope = refused.get("structuredContent") or {}
        draft = (envelope.get("context") or {}).get("redacted_draft")
        message = (envelope.get("context") or {}).get("message", "no answer")
        self.show_text("ada", "safe_write app.env", message)
        written = _call(ada, "safe_write", {"path": "app.env", "draft": draft or ""})
        self.show("ada", f"safe_write app.env draft={str(draft)[:12]}…", written)
        text = self._text("app.env")
        self.check(
            bool(text) and TOKEN not in text, f"on disk: {text.splitlines()[-1] if text else 'nothing'}"
        )

    def _undo(self, ada: RawClient) -> None:
        self.title("ada takes her first change back; ben's later edit would be lost, so she is told")
        conflict = _call(ada, "undo", {"path": "plan.md"})
        self.show("ada", "undo path=plan.md", conflict)
        self.check("ben was here" in self._text("plan.md"), "nothing was changed")
        self.title("ada takes her last change back")
        self.show("ada", "undo", _call(ada, "undo", {}))
        self.check(
            not os.path.exists(os.path.join(self.folder, "app.env")), "app.env is gone, plan.md is untouched"
        )

    # --- showing ----------------------------------------------------------------------------------------------

    def _text(self, name: str) -> str:
        try:
            return Path(self.folder, name).read_text(encoding="utf-8")
        except OSError:
            return ""

    def title(self, words: str) -> None:
        self._part += 1
        print(f"{self._part}. {words}")

    def show(self, who: str, call: str, result: dict[str, Any]) -> None:
        self.show_text(who, call, _text(result))

    def show_text(self, who: str, call: str, answer: str) -> None:
        print(f"   {who}: {call}")
        lines = answer.splitlines()
        for line in lines[:MOST_LINES]:
            print(f"      {line[:160]}")
        if len(lines) > MOST_LINES:
            hidden = len(lines) - MOST_LINES
            print(f"      … {hidden} more line{'' if hidden == 1 else 's'}")

    def check(self, held: bool, promise: str) -> None:
        self.held = self.held and held
        print(f"   {'ok' if held else 'BROKEN'}: {promise}\n")


def _call(client: RawClient, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = client.call(tool, arguments, ANSWER_S).get("result") or {}
    return result


def _text(result: dict[str, Any]) -> str:
    return "\n".join(part.get("text", "") for part in result.get("content", [])) or "no answer"
