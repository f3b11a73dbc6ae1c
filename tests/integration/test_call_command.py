"""`perdure call` and `perdure tools` with built-in tools and with those of a mounted server."""

from __future__ import annotations

import json
import subprocess

import pytest
from commands import perdure

from testbed import Bed

SCHEMA = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "What to look for."},
        "count": {"type": "integer", "default": 3},
        "labels": {"type": "array"},
    },
    "required": ["key", "labels"],
    "additionalProperties": False,
}
TOOLS = [{"name": "strict", "description": "Takes what it names.", "inputSchema": SCHEMA}]


@pytest.fixture
def mounted(bed: Bed) -> Bed:
    """A trusted registry with a server that starts, and one that cannot."""
    catalog = bed.root / "catalog.json"
    catalog.write_text(json.dumps(TOOLS))
    command, *arguments = bed.fake(f"--catalog={catalog}", name="notes").argv
    bed.trusted(
        "mcp.md",
        f"# MCP servers\n\n## notes\ncommand: {command}\nargs: {json.dumps(arguments)}\n\n## gone\n"
        f"command: no-such-command\n\n## Allowed commands\n- {command}\n- no-such-command\n",
    )
    return bed


def call(bed: Bed, *words: str) -> subprocess.CompletedProcess[str]:
    return perdure(bed, "call", *words)


@pytest.mark.thorough
def test_the_exit_code_of_a_call_says_what_failed(bed: Bed) -> None:
    assert call(bed, "safe_write", "path=a.txt", "content=x").returncode == 0
    assert call(bed, "read", "path=b.txt").returncode == 1
    assert call(bed, "read", "pth=a.txt").returncode == 2
    assert call(bed, "read", "path:=5", "--json").returncode == 2
    assert call(bed, "safe_write", "path=a.txt", "content=y").returncode == 3
    assert call(bed, "safe_write", "path=a.txt", "content=y", "--json").returncode == 3


@pytest.mark.thorough
def test_a_mounted_server_answers_for_itself(mounted: Bed) -> None:
    served = call(mounted, "notes__strict", "key=a", "labels:=[1]")
    assert (served.returncode, json.loads(served.stdout)["arguments"]) == (0, {"key": "a", "labels": [1]})
    unknown = call(mounted, "notes__strct")
    assert (unknown.returncode, "`perdure tools` lists the tools" in unknown.stderr) == (2, True)
    absent = call(mounted, "gone__anything")
    assert absent.returncode == 4
    assert "gone is not available: no-such-command: No such file or directory" in absent.stderr


@pytest.mark.thorough
def test_tools_lists_mounted_servers_and_what_keeps_one_from_starting(mounted: Bed) -> None:
    shown = perdure(mounted, "tools")
    assert shown.returncode == 0, shown
    assert "notes (mounted): " in shown.stdout
    assert "  notes__strict " in shown.stdout
    assert "gone (mounted): 0 tools\n" in shown.stdout
    assert "does not start: no-such-command: No such file or directory" in shown.stdout
    servers = {one["name"]: one for one in json.loads(perdure(mounted, "tools", "--json").stdout)["mounts"]}
    assert "notes__strict" in [tool["name"] for tool in servers["notes"]["tools"]]
    assert servers["gone"]["tools"] == []


@pytest.mark.thorough
def test_one_tool_is_shown_with_its_arguments(mounted: Bed) -> None:
    shown = perdure(mounted, "tools", "notes__strict")
    assert shown.stdout.splitlines() == [
        "notes__strict",
        "  Takes what it names.",
        "  key*     string   What to look for.",
        "  count    integer  (default: 3)",
        "  labels*  array",
        "perdure call notes__strict key=… labels:=…",
    ]
    assert json.loads(perdure(mounted, "tools", "notes__strict", "--json").stdout)["inputSchema"] == SCHEMA
    near = perdure(mounted, "tools", "notes__stric")
    assert (near.returncode, near.stderr) == (
        2,
        "perdure tools: no tool notes__stric; did you mean notes__strict?\n",
    )


def test_a_built_in_tool_is_shown_without_starting_a_server(bed: Bed) -> None:
    shown = perdure(bed, "tools", "read").stdout
    assert shown.startswith("read\n")
    assert "path*" in shown
    assert shown.endswith("perdure call read path=…\n")


@pytest.mark.thorough
def test_servers_of_a_registry_that_is_not_trusted_are_not_started(bed: Bed) -> None:
    (bed.workspace / "mcp.md").write_text("# MCP servers\n\n## notes\ncommand: python\n")
    shown = perdure(bed, "tools")
    assert shown.returncode == 0
    assert "perdure trust" in shown.stderr
