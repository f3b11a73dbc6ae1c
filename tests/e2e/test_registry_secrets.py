"""A secret in the environment, or in the registry, is in nothing that any command of the registry says or writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_servers import official, record, scripted
from perdure.cli.registry import COMMANDS
from testbed import Bed

SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"  # by reference: nowhere but in the environment
LITERAL = "lit-Ab3dE5gH7jK9mN1pQ3sT"  # written into the registry by hand: in no output
TOKEN = "tok-Rr7tY9uI1oP3aS5dF7gH"  # the catalog's
PACKAGE = {
    "registryType": "npm",
    "identifier": "@acme/weather",
    "version": "1.2.3",
    "transport": {"type": "stdio"},
    "environmentVariables": [{"name": "WEATHER_KEY", "isRequired": True, "isSecret": True}],
}
REGISTRY = f"""## a
command: python
args: ["--token=$WEATHER_KEY", "--api-key", "{LITERAL}"]
env: KEY=$WEATHER_KEY
env: PASSWORD={LITERAL}
cwd: ./x
## far
url: https://u:{LITERAL}@127.0.0.1:1/p?k={LITERAL}
headers: X-Key={LITERAL}
headers: Authorization=Bearer $WEATHER_KEY
## signed
url: http://127.0.0.1:1/mcp
oauth: client_id=me, client_secret={LITERAL}, scopes=use
## machine
url: http://127.0.0.1:1/mcp
oauth: grant=client_credentials, client_id=me, client_secret=$WEATHER_KEY, issuer=http://127.0.0.1:1
## broken
command: python
args: [{LITERAL}
"""
CLIENT = {
    "mcpServers": {"theirs": {"command": "node", "env": {"API_KEY": LITERAL}, "args": [f"--token={LITERAL}"]}}
}
WORDS: dict[str, list[list[str]]] = {
    "list": [[]],
    "show": [["a"], ["far"], ["signed"], ["broken"]],
    "validate": [[], ["a"], ["broken"]],
    "refresh-capabilities": [[]],
    "search": [["weather"]],
    "install": [
        ["new", "--env", f"PASSWORD={LITERAL}", "--", "python", f"--token={LITERAL}"],
        ["a", "--env", f"PASSWORD={LITERAL}", "--", "python"],
        ["bad", "--env", f"PASSWORD={LITERAL}\n", "--", "python"],
        ["bad", "--url", f"https://u:{LITERAL}@host.test /p"],
        ["bad", "--url", "https://x.test", "--oauth", f"client_secret={LITERAL}"],
        ["--from", "t.test/weather", "--env", "WEATHER_KEY=$WEATHER_KEY"],
        ["--from", "t.test/weather", "--as", "other", "--env", f"WEATHER_KEY={LITERAL}"],
    ],
    "outdated": [[]],
    "update": [["weather"], ["a"]],
    "enable": [["a"], ["far"]],
    "disable": [["a"], ["far"]],
    "approve": [["a"]],
    "login": [["a"], ["far"], ["signed", "--wait", "2"], ["machine"]],
    "logout": [["far"], ["signed"], ["machine"]],
    "import": [["cursor", "--file", "theirs.json"], ["cursor", "--file", "theirs.json", "--apply"]],
    "export": [["cursor", "--file", "ours.json"], ["codex", "--file", "ours.toml"], ["goose", "--file", "ours.yaml"]],
    "sync": [["cursor", "--file", "ours.json"], ["continue", "--file", "ours2.yaml"]],
    "uninstall": [["a"], ["nothing"]],
    "serve": [],
}  # fmt: skip


class Desk:
    def __init__(self, bed: Bed, catalog: str) -> None:
        self.folder = bed.workspace
        self.home = Path(bed.environ["PERDURE_HOME"])
        self.said: list[str] = []
        self.env = {
            **bed.environ,
            "WEATHER_KEY": SECRET,
            "PERDURE_CATALOG": catalog,
            "PERDURE_CATALOG_TOKEN": TOKEN,
            "HOME": str(bed.root),
        }
        bed.trusted("mcp.md", REGISTRY)
        (self.folder / "theirs.json").write_text(json.dumps(CLIENT))

    def run(self, *words: str, timeout: float = 60) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", *words],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        self.said += [done.stdout, done.stderr]

    def serve(self) -> None:
        """What it says to others counts, too."""
        words = [sys.executable, "-m", "perdure", "registry", "serve", "--port", "0"]
        server = subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.split(" at ")[1].split()[0].rstrip("/")
        for path in (
            "/mcp-servers",
            "/mcp-servers?expand=spec",
            "/mcp-servers/a",
            "/v0.1/servers",
            "/capabilities",
        ):
            request = urllib.request.Request(url + path)
            try:
                with urllib.request.urlopen(request, timeout=10) as reply:
                    self.said.append(reply.read().decode())
            except urllib.error.HTTPError as error:
                self.said.append(error.read().decode())
        server.kill()
        self.said.append(line + server.stdout.read())
        server.wait()


@pytest.fixture
def desk(bed: Bed) -> Iterator[Desk]:
    with scripted(official([record("t.test/weather", "1.2.3", packages=[PACKAGE])])) as server:
        yield Desk(bed, server.url.replace("//", f"//user:{LITERAL}@"))


def test_every_command_is_in_this_list() -> None:
    assert set(WORDS) == set(COMMANDS)


@pytest.mark.thorough
def test_no_secret_is_in_what_any_command_says_or_leaves(desk: Desk) -> None:
    for name, lists in WORDS.items():
        for words in lists:
            desk.run("registry", name, *words)
            desk.run("registry", "--json", name, *words)
    desk.serve()
    desk.run("doctor", "--json", timeout=120)
    desk.run("status", "--json")
    assert len(desk.said) > 100
    for secret in (SECRET, LITERAL, TOKEN):
        assert [text for text in desk.said if secret in text] == []
    for secret in (SECRET, TOKEN):
        files = [path for root in (desk.home, desk.folder) for path in root.rglob("*") if path.is_file()]
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_secret_that_is_said_would_be_found(desk: Desk) -> None:
    desk.env["WEATHER_KEY"] = "x"
    desk.run("registry", "show", SECRET)
    assert any(SECRET in text for text in desk.said)
    assert os.environ.get("WEATHER_KEY") is None
