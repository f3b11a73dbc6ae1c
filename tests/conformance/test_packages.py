"""The packages for clients, in the clients themselves: Claude Code's plugin, Gemini CLI's extension, the bundle for desktop
clients."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scripted_model
from scripted_agents import GenerateContentModel, MessagesModel, served
from test_real_hooks import CLAUDE, GEMINI, TOOLS, calls, perdure, program, run, subagent

from testbed import Bed

pytestmark = [pytest.mark.node, pytest.mark.thorough]

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "packaging" / "claude-plugin"
MCPB = ("mcpb", "@anthropic-ai/mcpb", "2.1.2", "dist/cli/cli.js")


class RecordingModel(MessagesModel):
    """`results` are the results of its calls, by the identity of the call."""

    def __init__(self, scripts: dict[str, list[Any]]) -> None:
        super().__init__(scripts)
        self.results: dict[str, str] = {}

    def answer(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        for message in asked["messages"]:
            for part in message["content"] if isinstance(message["content"], list) else ():
                if part.get("type") == "tool_result":
                    self.results[part["tool_use_id"]] = json.dumps(part["content"])
        return super().answer(asked)


@pytest.fixture
def bed_with_perdure(bed: Bed) -> Bed:
    """Where `perdure` is a program that the client finds."""
    folder = bed.root / "bin"
    folder.mkdir()
    script = folder / "perdure"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m perdure "$@"\n')
    script.chmod(0o755)
    bed.environ |= {
        "ANTHROPIC_API_KEY": "sk-none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    return bed


@pytest.fixture
def plugin(bed_with_perdure: Bed) -> Bed:
    claude = program(CLAUDE)
    run(bed_with_perdure, [*claude, "plugin", "marketplace", "add", str(ROOT)])
    run(bed_with_perdure, [*claude, "plugin", "install", "perdure@perdure"])
    return bed_with_perdure


def ask(bed: Bed, prompt: str) -> list[dict[str, Any]]:
    words = ["-p", "--output-format", "stream-json", "--verbose", "--allowedTools", TOOLS]
    return [json.loads(line) for line in run(bed, [*program(CLAUDE), *words], stdin=prompt).splitlines()]


def test_the_client_finds_no_fault_in_its_plugin(bed_with_perdure: Bed) -> None:
    for path in (PLUGIN, ROOT):
        shown = run(bed_with_perdure, [*program(CLAUDE), "plugin", "validate", str(path)])
        assert "Validation passed" in shown


def test_a_subagent_cannot_write_what_another_holds_until_it_is_released(plugin: Bed) -> None:
    bed, held = plugin, plugin.workspace / "held.txt"
    write = ("Write", {"file_path": str(held), "content": "by the subagent\n"})
    model = RecordingModel(
        {
            "script-one": [subagent("script-first")],
            "script-first": [write],
            "script-two": [subagent("script-second")],
            "script-second": [write],
        }
    )
    # given a file that a person holds, and a client with the plugin
    reserved = json.loads(perdure(bed, "reserve", "held.txt", "--reason", "schema change", "--json"))
    with scripted_model.served(model) as address:
        bed.environ["ANTHROPIC_BASE_URL"] = address
        # when a subagent of the client writes it with the client's own tool
        opening = next(message for message in ask(bed, "script-one") if message.get("subtype") == "init")
        # then the write is refused, and the subagent is told who holds the file
        refusal = model.results["call-script-first-0"]
        assert "held.txt is reserved by perdure-cli until " in refusal
        assert "schema change" in refusal
        assert not held.exists()
        # and after the release it works, and is recorded with its agent
        perdure(bed, "release", str(reserved["token"]))
        ask(bed, "script-two")
    assert held.read_text() == "by the subagent\n"
    assert calls(bed) == [("Write", "call-script-second-0", 1, True, "done")]
    # and the plugin brought its server, commands and skill
    assert {"perdure:undo", "perdure:timeline", "perdure:handoff"} <= set(opening["slash_commands"])
    assert "perdure:perdure" in opening["skills"]
    assert "plugin:perdure:perdure" in [server["name"] for server in opening["mcp_servers"]]


def test_a_tool_of_the_plugins_server_is_one_change(plugin: Bed) -> None:
    tool = "mcp__plugin_perdure_perdure__safe_write"
    script: list[Any] = [(scripted_model.WAIT, {}), (tool, {"path": "a.txt", "content": "x\n"})]
    model = RecordingModel({"script-one": script})
    with scripted_model.served(model) as address:
        plugin.environ["ANTHROPIC_BASE_URL"] = address
        run(plugin, [*program(CLAUDE), "-p", "--allowedTools", tool], stdin="script-one")
    assert (plugin.workspace / "a.txt").read_text() == "x\n", model.results
    assert calls(plugin) == [(tool, "call-script-one-1", 1, False, "done")]


def test_the_plugin_goes_without_a_trace_in_the_project(plugin: Bed) -> None:
    run(plugin, [*program(CLAUDE), "plugin", "uninstall", "perdure@perdure"])
    assert list(plugin.workspace.iterdir()) == []


def test_without_the_program_the_launcher_says_how_to_install_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", str(PLUGIN / "launch.sh"), "run"],
        env={"HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, "uv tool install perdure" in done.stderr) == (127, True)


# --- Gemini CLI -------------------------------------------------------------------------------------------------


def test_gemini_records_its_own_tools_with_the_extension(bed_with_perdure: Bed) -> None:
    bed, gemini = bed_with_perdure, program(GEMINI)
    settings = Path(bed.environ["HOME"]) / ".gemini" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}\n')
    bed.environ |= {"GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    folder = str(ROOT / "packaging" / "gemini-extension")
    run(bed, [*gemini, "extensions", "validate", folder])
    run(bed, [*gemini, "extensions", "install", folder, "--consent"])
    model = GenerateContentModel(
        {
            "script-one": [
                ("run_shell_command", {"command": "echo one > a.txt", "description": "write"}),
                ("mcp_perdure_safe_write", {"path": "b.txt", "content": "two\n"}),
            ]
        }
    )
    with served(model) as address:
        bed.environ["GOOGLE_GEMINI_BASE_URL"] = address
        run(bed, [*gemini, "-p", "script-one", "--yolo"])
    assert [(call[0], call[-1]) for call in calls(bed)] == [
        ("run_shell_command", "done"),
        ("mcp_perdure_safe_write", "done"),
    ]
    assert (bed.workspace / "b.txt").read_text() == "two\n"


# --- desktop clients --------------------------------------------------------------------------------------------


def test_the_bundle_is_packed_and_valid(tmp_path: Path) -> None:
    tool = program(MCPB)
    source, bundle = ROOT / "packaging" / "mcpb", tmp_path / "perdure.mcpb"

    def mcpb(*words: str | Path) -> str:
        done = subprocess.run(
            [*tool, *map(str, words)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "passes" in mcpb("validate", source / "manifest.json")
    mcpb("pack", source, bundle)
    mcpb("unpack", bundle, tmp_path / "unpacked")
    names = {
        path.relative_to(tmp_path / "unpacked").as_posix() for path in (tmp_path / "unpacked").rglob("*")
    }
    assert names == {"manifest.json", "pyproject.toml", "server", "server/main.py"}
