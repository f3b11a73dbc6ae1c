"""The client that the conformance suite tests: `perdure run` with the suite's server in its registry.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py URL

What a person would do is done here: `perdure registry login` where a server wants a sign-in, and the calls that the
scenario names. What the suite looks at is what Perdure's bridge sends. Exit code 1 where a call did not succeed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.testing.raw_client import Object, RawClient

NAME = "far"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
SIGN_INS = 3  # how often a person signs in before they give up
PATIENCE_S = 120
STARTUP_S = 600
_PERDURE = (sys.executable, "-P", "-m", "perdure")


class Failed(Exception):
    """A call, or a sign-in, did not succeed."""


class Person:
    """Someone who uses one remote server through Perdure."""

    def __init__(self, root: Path, url: str, scenario: str, context: Object) -> None:
        self.scenario = scenario
        self.context = context
        self._environ = {
            **os.environ,
            "HOME": str(root),
            "PERDURE_HOME": str(root / "home"),
            "XDG_CONFIG_HOME": str(root / "config"),
            "FAR_SECRET": str(context.get("client_secret", "")),
        }
        self._root = root
        self._registry = root / "servers.md"
        self._registry.write_text(
            f"## {NAME}\nurl: {url}\nrequired: true\ntimeout: startup={STARTUP_S}\n{self._oauth()}"
        )
        # On a machine that is busy, a bridge that is slow to start must not pass for a server that is silent.
        settings = root / "config" / "perdure" / "perdure.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"[limits]\nera_s = {STARTUP_S}\n")
        self._sign_ins = 0
        self._pid = 0
        self.client: RawClient | None = None

    def _oauth(self) -> str:
        if self.scenario == "auth/basic-cimd":
            return f"oauth: client_metadata_url={CLIENT_METADATA}\n"
        if self.scenario == "auth/pre-registration":
            return f"oauth: client_id={self.context['client_id']}, client_secret=$FAR_SECRET\n"
        return ""

    def sign_in(self) -> None:
        """`perdure registry login`, and a browser that agrees to everything."""
        self._sign_ins += 1
        if self._sign_ins > SIGN_INS:
            raise Failed("signed in too often")
        with subprocess.Popen(
            [*_PERDURE, "registry", "--registry", str(self._registry), "login", NAME, "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env=self._environ,
            cwd=self._root,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="")
                if (address := json.loads(line).get("open")) is not None:
                    urllib.request.urlopen(address, timeout=10).read()
        if process.returncode:
            raise Failed(f"login ended with {process.returncode}")
        if self.client is not None:
            self._wait_ready()

    def _wait_ready(self) -> None:
        """The host notices the sign-in and starts its bridge anew."""
        assert self.client is not None
        until = time.monotonic() + PATIENCE_S
        arguments = {"render": "json", "detail": "full"}
        while time.monotonic() < until:
            health = self.client.modern_call("health", arguments)["result"]["structuredContent"]
            (row,) = [row for row in health["mounts"] if row["name"] == NAME]
            if row["state"] == "ready" and row["pid"] != self._pid:
                self._pid = row["pid"]
                return
            time.sleep(0.05)
        raise Failed("not mounted again after a sign-in")

    def begin(self) -> None:
        argv = [*_PERDURE, "run", "--registry", str(self._registry), "--render", "json"]
        self.client = RawClient(argv, self._environ, self._root)

    def end(self) -> None:
        if self.client is not None:
            self.client.close()
            print(self.client.stderr, file=sys.stderr)

    def ask(self, method: str, params: Object | None = None) -> Object:
        """A request that must succeed; a sign-in that it waits for is done on the way."""
        assert self.client is not None
        while True:
            answer = self.client.modern(method, params, timeout=PATIENCE_S)
            print(method, json.dumps(params), "->", json.dumps(answer)[:400])
            if "result" in answer:
                result: Object = answer["result"]
                return result
            if "perdure registry login" not in answer["error"]["message"]:
                raise Failed(answer["error"]["message"])
            self.sign_in()

    def names(self, method: str, member: str, key: str = "name") -> list[str]:
        return [item[key] for item in self.ask(method)[member]]

    def tools(self) -> list[str]:
        """Those of the suite's server."""
        return [name for name in self.names("tools/list", "tools") if name.startswith(f"{NAME}__")]

    def use(self, tool: str, arguments: Object | None = None, **members: Any) -> Object:
        name = tool if tool.startswith(f"{NAME}__") else f"{NAME}__{tool}"
        return self.ask("tools/call", {"name": name, "arguments": arguments or {}, **members})


# --- what a scenario wants ------------------------------------------------------------------------------------------


def only_list(person: Person) -> None:
    person.tools()


def call_all(person: Person) -> None:
    for tool in person.tools():
        person.use(tool, {"a": 2, "b": 3, "region": "us-west1"})


def call_given(person: Person) -> None:
    person.tools()
    for call in person.context["toolCalls"]:
        person.use(call["name"], call["arguments"])


def use_everything(person: Person) -> None:
    call_all(person)
    for uri in person.names("resources/list", "resources", "uri"):
        if not uri.startswith("perdure:") and not uri.startswith("checkpoint:"):
            person.ask("resources/read", {"uri": uri})
    for prompt in person.names("prompts/list", "prompts"):
        person.ask("prompts/get", {"name": prompt})


def answer_questions(person: Person) -> None:
    """Calls that ask something first; another call in between must not get the answer."""
    person.tools()
    for tool in ("test_mrtr_echo_state", "test_mrtr_no_state"):
        asked = person.use(tool)
        person.use("test_mrtr_unrelated")
        answers = {
            key: {"action": "accept", "content": {"confirmed": True}} for key in asked["inputRequests"]
        }
        state = {key: asked[key] for key in ("requestState",) if key in asked}
        person.use(tool, inputResponses=answers, **state)
    person.use("test_mrtr_no_result_type")


SCENARIOS: dict[str, Callable[[Person], None]] = {
    "json-schema-ref-no-deref": only_list,
    "request-metadata": only_list,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_given,
    "sep-2322-client-request-state": answer_questions,
}


def main() -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as root:
        person = Person(Path(root), sys.argv[1], scenario, context)
        try:
            if scenario.startswith("auth/"):
                person.sign_in()
            person.begin()
            SCENARIOS.get(scenario, call_all)(person)
        except Failed as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            person.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
