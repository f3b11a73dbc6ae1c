"""`perdure registry` as a person uses it: exit codes, JSON, and no secret in anything it says or writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"
LITERAL = "hunter2-literal-value"


class Terminal:
    """Commands in a folder of their own, with all that they print kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PERDURE", "RW_"))},
            "PERDURE_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "WEATHER_KEY": SECRET,
        }
        (folder / "work").mkdir()

    def run(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", "registry", *words],
            cwd=self.folder / "work",
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.said.append(done.stdout + done.stderr)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def json(self, *words: str, code: int | None = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.mark.thorough
def test_a_server_is_installed_shown_switched_and_removed(terminal: Terminal) -> None:
    (terminal.folder / "work" / "mcp.md").write_text("# MCP servers\n\nKept.\n")
    terminal.run(
        "install", "weather", "--description", "the weather", "--env", "KEY=$WEATHER_KEY", "--arg", "-y",
        "--", "python", "server.py", "--city", "Oslo, Norway", "--",
    )  # fmt: skip
    assert terminal.json("list")["servers"] == [
        {
            "name": "weather",
            "enabled": True,
            "transport": "stdio",
            "description": "the weather",
            "version": None,
            "source": "mcp.md#weather",
            "trusted": True,
        }
    ]
    shown = terminal.json("show", "weather")
    assert shown["command"] == "python"
    assert shown["args"] == ["server.py", "--city", "Oslo, Norway", "--", "-y"]
    assert shown["env"] == {"KEY": "$WEATHER_KEY"}
    assert shown["source"] == "mcp.md#weather"
    assert terminal.json("disable", "weather") == {"name": "weather", "enabled": False}
    assert terminal.json("list")["servers"][0]["enabled"] is False
    terminal.run("enable", "weather")
    assert terminal.json("validate", "weather")["ok"] is True
    assert "weather" in terminal.run("list")
    terminal.run("uninstall", "weather")
    assert (terminal.folder / "work" / "mcp.md").read_text() == "# MCP servers\n\nKept.\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "absent"), 1),
        (("enable", "absent"), 1),
        (("disable", "absent"), 1),
        (("uninstall", "absent"), 0),
        (("validate", "absent"), 1),
        (("show", "../x"), 2),
        (("show", "a\nb"), 2),
        (("install", ".hidden", "--", "python"), 2),
        (("install", "a"), 2),
        (("install", "a", "--description", "x\u2028## evil", "--", "python"), 2),
        (("install", "a", "--", "python", "x\r## evil\rcommand: node"), 2),
        (("install", "a", "--env", "K", "--", "python"), 2),
        (("install", "there", "--", "python"), 3),
        (("install", "a", "--no-such-option", "--", "python"), 2),
        (("list", "--no-such-option"), 2),
        (("lst",), 2),
        ((), 2),
        (("--registry", "x.toml", "list"), 2),
        (("--registry", "nosuch://host/", "list"), 2),
        (("validate",), 1),
    ],
)
def test_every_outcome_has_its_exit_code(terminal: Terminal, words: tuple[str, ...], code: int) -> None:
    text = "## there\ncommand: python\n## broken\n"
    (terminal.folder / "work" / "mcp.md").write_text(text)
    terminal.run(*words, code=code)
    assert (terminal.folder / "work" / "mcp.md").read_text() == text


@pytest.mark.parametrize("words", [("validate",), ("validate", "there")])
def test_a_section_that_is_there_twice_is_reported(terminal: Terminal, words: tuple[str, ...]) -> None:
    path = terminal.folder / "work" / "mcp.md"
    path.write_text("## there\ncommand: python3\n## other\ncommand: python3\n## there\ncommand: node\n")
    named = ("--registry", "mcp.md")
    said = terminal.run(*named, *words, code=1)
    assert "there: failed\n  error: duplicate" in said
    assert terminal.run(*named, "validate", "other") == "other: ok\n"
    results = terminal.json(*named, *words, code=1)
    assert ["duplicate"] in [one["errors"] for one in results.get("servers", [results])]


@pytest.mark.parametrize(
    "words", [("list",), ("show", "a"), ("install", "a", "--", "python"), ("serve", "--port", "0")]
)
@pytest.mark.parametrize("name", ["servers", "servers.md"])
def test_a_folder_is_no_registry(terminal: Terminal, name: str, words: tuple[str, ...]) -> None:
    folder = terminal.folder / "work" / name
    folder.mkdir()
    said = terminal.run("--registry", name, *words, code=2)
    assert f"{folder} is a folder; a registry is a file" in said
    assert f"name the file in it: {folder / 'mcp.md'}" in said
    assert list(folder.iterdir()) == []


def test_a_command_that_would_never_be_started_is_refused_with_the_fix(terminal: Terminal) -> None:
    path = terminal.folder / "work" / "mcp.md"
    path.write_text("# MCP servers\n")
    said = terminal.run("install", "a", "--", "bash", "server.sh", code=1)
    assert "a: the command bash is not in the allowed list, so it would never be started" in said
    hint = f"add to {path}, below `## Allowed commands`, one on a line: "
    assert hint + "docker node npx python python3 uvx bash" in said
    assert path.read_text() == "# MCP servers\n"
    path.write_text("# MCP servers\n\n## Allowed commands\nnode\n")
    assert hint + "bash" in terminal.run("install", "a", "--", "bash", "server.sh", code=1)
    refused = json.loads(terminal.run("install", "a", "--json", "--", "python", code=1))
    assert refused["error"] == "command_not_allowed"
    path.write_text("# MCP servers\n\n## Allowed commands\nnode\nbash\n")
    terminal.run("install", "a", "--", "bash", "server.sh")
    terminal.run("install", "b", "--", "$SHELL")  # known only where it is started
    assert "separate words: -- node server.js" in terminal.run("install", "c", "--", "node server.js", code=1)


def test_the_fix_for_a_registry_in_json_is_json(terminal: Terminal) -> None:
    path = terminal.folder / "work" / "mcp.json"
    path.write_text("{}")
    named = ("--registry", "mcp.json")
    refusal = terminal.run(*named, "install", "a", "--json", "--", "bash", "server.sh", code=1)
    added = json.loads(json.loads(refusal)["hint"].removeprefix(f"add to {path}: "))
    path.write_text(json.dumps(added))
    terminal.run(*named, "install", "a", "--", "bash", "server.sh")
    assert terminal.json(*named, "validate", "a")["ok"] is True


def test_a_registry_that_cannot_be_written_exits_with_4(terminal: Terminal) -> None:
    work = terminal.folder / "work"
    (work / "locked").mkdir()
    (work / "locked" / "mcp.md").write_text("")
    (work / "locked").chmod(0o555)
    if os.access(work / "locked", os.W_OK):
        pytest.skip("this user may write everywhere")
    found = terminal.run("--registry", "locked/mcp.md", "install", "a", "--json", "--", "python", code=4)
    assert json.loads(found)["retryable"] is False


def test_the_registry_is_found_by_option_environment_workspace_and_user(terminal: Terminal) -> None:
    work, config = terminal.folder / "work", terminal.folder / "config" / "perdure"
    said = terminal.run("install", "user", "--", "python")
    scope = " (all projects; --project puts it into this one only)"
    assert said == f"installed user in {config / 'mcp.md'}{scope}\n"
    assert "## user" in (config / "mcp.md").read_text()
    assert terminal.run("install", "ours", "--project", "--", "python").endswith("mcp.md (this project)\n")
    assert "## ours" in (work / "mcp.md").read_text()
    (work / "mcp.md").unlink()
    (work / "mcp.json").write_text('{"mcpServers": {"space": {"command": "node"}}}')
    assert [one["name"] for one in terminal.json("list")["servers"]] == ["space"]
    (work / "named.md").write_text("## named\ncommand: node\n")
    terminal.env["PERDURE_REGISTRY"] = "named.md"
    assert [one["name"] for one in terminal.json("list")["servers"]] == ["named"]
    assert [one["name"] for one in terminal.json("--registry", "mcp.json", "list")["servers"]] == ["space"]


def test_capabilities_are_the_backend_and_six_flags(terminal: Terminal) -> None:
    assert terminal.json("refresh-capabilities") == {
        "backend_id": "filesystem",
        "supports_install": True,
        "supports_uninstall": True,
        "supports_capability_handshake": False,
        "supports_audit": False,
        "durable": True,
        "supports_canonical_export": True,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["mcp.md", "mcp.json"])
def test_no_secret_is_in_any_output_or_file_of_any_command(terminal: Terminal, name: str) -> None:
    terminal.env["PERDURE_REGISTRY"] = name
    for words in (
        ("install", "a", "--env", "KEY=$WEATHER_KEY", "--", "python", "--token=$WEATHER_KEY"),
        (
            "install",
            "b",
            "--env",
            f"PASSWORD={LITERAL}",
            "--",
            "python",
            f"--token={LITERAL}",
            "--api-key",
            LITERAL,
        ),
        (
            "install",
            "c",
            "--url",
            f"https://u:{LITERAL}@host.test/p?k={LITERAL}",
            "--header",
            f"X-Key={LITERAL}",
        ),
        ("install", "b", "--env", f"PASSWORD={LITERAL}", "--", "python"),
        ("install", "d", "--env", f"PASSWORD={LITERAL}\n", "--", "python"),
        ("install", "e", "--url", f"https://u:{LITERAL}@host.test /p"),
        ("list",),
        ("show", "a"),
        ("show", "b"),
        ("show", "c"),
        ("validate",),
        ("disable", "b"),
        ("enable", "b"),
        ("refresh-capabilities",),
        ("uninstall", "a"),
    ):
        terminal.run(*words, code=None)
        terminal.run(*words, "--json", code=None) if words[0] != "install" else None
    for text in terminal.said:
        assert SECRET not in text
        assert LITERAL not in text
    files = [path for path in terminal.folder.rglob("*") if path.is_file()]
    assert files
    assert all(SECRET.encode() not in path.read_bytes() for path in files)
