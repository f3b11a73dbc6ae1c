"""The commands of every how-to, run in the order of the page in a home of their own; servers in the background."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from document_blocks import DOCS, PAGES, Block, blocks, commands
from perdure.testing.raw_client import RawClient

pytestmark = pytest.mark.thorough

# These have tests of their own, with an agent or a database.
ELSEWHERE = {"tutorial/ten-minutes.md", "how-to/use-postgresql.md"}
HOW_TOS = [path for path in PAGES if path.relative_to(DOCS).as_posix() not in ELSEWHERE]
# A backup is made while no host runs.
WITHOUT_AGENT = {"how-to/back-up-and-clean-up.md"}


class Sandbox:
    """A home with a project, a second one, a client's configuration and the files that the pages name."""

    def __init__(self, home: Path, sockets: Path) -> None:
        self.home = home
        self.project = home / "project"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PERDURE", "XDG_"))}
        programs = home / "bin"
        self.env = {
            **kept,
            "HOME": str(home),
            "PATH": f"{programs}:{os.path.dirname(sys.executable)}:{kept['PATH']}",
            "PERDURE_PORT": "0",
            "PERDURE_ATTACH": str(sockets / "attach.sock"),
            "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        }
        (self.project / "src").mkdir(parents=True)
        (home / "other").mkdir()
        programs.mkdir()
        script = programs / "perdure"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m perdure "$@"\n')
        script.chmod(0o755)
        (home / ".gitconfig").write_text("[user]\n name = a\n email = a@b\n")
        (home / ".claude.json").write_text(
            '{"mcpServers": {"notes": {"command": "python", "args": ["n.py"]}}}'
        )
        (self.project / "team.md").write_text("# Servers\n## time\ncommand: uvx\nargs: mcp-server-time\n")
        (home / ".hermes").mkdir()
        with contextlib.closing(sqlite3.connect(home / ".hermes" / "checkpoints.db")) as store, store:
            store.execute(
                "CREATE TABLE checkpoints (key TEXT PRIMARY KEY, value TEXT NOT NULL, "
                "version INTEGER NOT NULL, updated_at TEXT NOT NULL)"
            )
            store.execute("INSERT INTO checkpoints VALUES ('old', '1', 1, '2025-01-01T00:00:00Z')")
        self.run("git init -q && git commit -q --allow-empty -m start")

    def run(self, text: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", text],
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> subprocess.Popen[str]:
        """A server that has told where it listens."""
        server = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            env=self.env,
            cwd=self.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert server.stdout is not None
        told: list[str] = []
        while not told or "http://" not in told[-1]:
            told.append(server.stdout.readline())
            assert told[-1], f"{line} ended with {server.wait()}: {told}"
        return server

    def agent(self) -> RawClient:
        """A session that has written `src/app.py` twice."""
        client = RawClient(["perdure", "run"], self.env, self.project)
        info = {"name": "claude-code", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        assert "result" in client.request("initialize", hello, timeout=60)
        client.notify("notifications/initialized")
        for content, mode in (("one\n", "create"), ("two\n", "overwrite")):
            client.call("safe_write", {"path": "src/app.py", "content": content, "mode": mode}, 60)
        return client


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with tempfile.TemporaryDirectory(prefix="perdure-") as sockets:  # the path of a socket must be short
        yield Sandbox(tmp_path, Path(sockets))


def run_block(sandbox: Sandbox, block: Block, servers: list[subprocess.Popen[str]]) -> None:
    if block.language == "python":
        sandbox.run(f"{shlex.quote(sys.executable)} - <<'EOF'\n{block.text}EOF\n")
    elif block.is_command and not block.reason_not_run:
        lines = [re.sub(r"--port \d+", "--port 0", line) for line in commands(block.text)]
        if block.mark == "background":
            servers += [sandbox.start(line) for line in lines]
        else:
            sandbox.run("\n".join(lines))


@pytest.fixture
def servers() -> Iterator[list[subprocess.Popen[str]]]:
    """What a page starts; all of it is ended with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for server in started:
        server.terminate()
        server.communicate(timeout=30)


@pytest.mark.parametrize("path", HOW_TOS, ids=lambda path: path.stem)
def test_every_command_of_a_how_to_works(
    path: Path, sandbox: Sandbox, servers: list[subprocess.Popen[str]]
) -> None:
    page = path.relative_to(DOCS).as_posix()
    agent = sandbox.agent()
    try:
        if page in WITHOUT_AGENT:
            agent.close()
        for block in blocks(path):
            run_block(sandbox, block, servers)
    finally:
        agent.close()
