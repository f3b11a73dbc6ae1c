"""The official reference servers, from the package registry, mounted from `mcp.md` and used in both eras."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import node
import pytest

from testbed import ERAS, Bed, Client, Era

CACHE = node.CACHE / "reference-servers"
FILES, EVERYTHING = "@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-everything"
PROGRAMS = {FILES: "dist/index.js", EVERYTHING: "dist/index.js"}

pytestmark = pytest.mark.node


@pytest.fixture(scope="session")
def packages() -> Path:
    """Where the servers are installed. Skips where there is no Node.js, or no way to get them."""
    try:
        return node.installed(CACHE, dict.fromkeys(PROGRAMS, "latest")) / "node_modules"
    except (node.Unavailable, subprocess.TimeoutExpired) as error:
        pytest.skip(str(error))


def run(bed: Bed, packages: Path, era: Era) -> Client:
    folder = bed.workspace / "notes"
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text("kept")
    files = json.dumps([str(packages / FILES / PROGRAMS[FILES]), str(folder)])
    every = json.dumps([str(packages / EVERYTHING / PROGRAMS[EVERYTHING])])
    bed.trusted(
        "mcp.md",
        f"# MCP servers\n\n## files\ncommand: node\nargs: {files}\nrequired: true\n\n"
        f"## everything\ncommand: node\nargs: {every}\nrequired: true\n",
    )
    return bed.run(era=era)


def direct(bed: Bed, packages: Path, name: str, *words: str) -> list[dict[str, object]]:
    """What a server lists to a client that speaks to it without us."""
    client = bed.start(["node", str(packages / name / PROGRAMS[name]), *words])
    client.is_checked = False
    client.initialize()
    tools: list[dict[str, object]] = client.get("tools/list")["tools"]
    client.kill()
    return tools


@pytest.mark.parametrize("era", ERAS)
def test_every_tool_of_the_reference_servers_is_there_whole(bed: Bed, packages: Path, era: Era) -> None:
    client = run(bed, packages, era)
    listed = {tool["name"]: tool for tool in client.get("tools/list", timeout=60)["tools"]}
    for mount, name, words in (
        ("files", FILES, [str(bed.workspace / "notes")]),
        ("everything", EVERYTHING, []),
    ):
        for tool in direct(bed, packages, name, *words):
            found = listed[f"{mount}__{tool['name']}"]
            assert {**found, "name": tool["name"]} == tool


@pytest.mark.parametrize("era", ERAS)
def test_the_reference_servers_are_used_killed_and_back(bed: Bed, packages: Path, era: Era) -> None:
    client = run(bed, packages, era)
    client.get("tools/list", timeout=60)
    path = str(bed.workspace / "notes" / "a.txt")
    assert "kept" in client.use_text("files__read_text_file", {"path": path}, timeout=60)
    assert "hello" in client.use_text("everything__echo", {"message": "hello"}, timeout=60)
    for mount in ("files", "everything"):
        client.wait_row(mount, state="ready", timeout=60)
        before = client.row(mount)
        os.kill(before["pid"], signal.SIGKILL)
        client.wait_row(mount, state="ready", generation=before["generation"] + 1, timeout=60)
    assert "kept" in client.use_text("files__read_text_file", {"path": path}, timeout=60)
    assert "again" in client.use_text("everything__echo", {"message": "again"}, timeout=60)
    outside = client.use("files__read_text_file", {"path": "/etc/hostname"}, timeout=60)
    assert outside["result"]["isError"] is True
