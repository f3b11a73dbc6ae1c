"""`perdure install CLIENT… --hooks` and `perdure uninstall CLIENT…` on the files of each client."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from client_cases import golden
from command_line import run_command
from perdure.registry.clients.table import CLIENTS

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
}
CLIENT = pytest.mark.parametrize("client", FILES)
MINE = """{
  // my own
  "hooks": {
    "Stop": [
      { "hooks": [ { "type": "command", "command": "say done" } ] }
    ],
  },
}
"""


class Home:
    def __init__(self, root: Path) -> None:
        self.root = root
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "RW_"))}
        kept = {
            name: value for name, value in kept.items() if name not in ("CODEX_HOME", "CLAUDE_CONFIG_DIR")
        }
        self.environ = {**kept, "HOME": str(root), "PERDURE_HOME": str(root / "home")}

    def __call__(self, *words: str, code: int = 0) -> str:
        done = run_command(*words, env=self.environ, cwd=self.root)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    def report(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--json"))
        return found

    def file(self, client: str) -> Path:
        return self.root / FILES[client]

    def tree(self) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(self.root)): path.read_bytes() if path.is_file() else None
            for path in self.root.rglob("*")
            if path.relative_to(self.root).parts[0] != "home"
        }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@CLIENT
def test_without_apply_only_the_change_is_shown(home: Home, client: str) -> None:
    shown = home("install", client, "--hooks")
    assert "hook journal --client" in shown
    assert "--apply writes it" in shown
    assert home.tree() == {}


@CLIENT
@pytest.mark.parametrize("text", [None, "", "{}\n", MINE], ids=["no file", "empty", "object", "own hooks"])
def test_hooks_come_and_go_and_the_file_is_what_it_was(home: Home, client: str, text: str | None) -> None:
    file = home.file(client)
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
    before = home.tree()

    done = home.report("install", client, "--hooks", "--apply")["settings"]
    assert (done["action"], done["file"]) == ("added", str(file))
    written = file.read_bytes()
    again = home.report("install", client, "--hooks", "--apply")
    assert (again["action"], again["settings"]["action"]) == ("unchanged", "unchanged")
    assert file.read_bytes() == written
    if text == MINE:
        assert b"say done" in written
        assert b"// my own" in written

    home("uninstall", client, "--apply")
    assert home.tree() == before
    home("uninstall", client, "--apply")
    assert home.tree() == before


@CLIENT
def test_what_is_printed_is_what_is_written(home: Home, client: str) -> None:
    printed = json.loads(home("hook", "settings", "journal", "--client", client))
    home("install", client, "--hooks", "--apply")
    written = json.loads(home.file(client).read_text())
    assert {key: written[key] for key in printed} == printed
    commands = {
        hook["command"]
        for entries in printed["hooks"].values()
        for entry in entries
        for hook in entry.get("hooks", [entry])
    }
    (command,) = commands
    assert shlex.split(command)[-4:] == ["hook", "journal", "--client", client]


@CLIENT
def test_after_an_edit_only_our_entries_go(home: Home, client: str) -> None:
    file = home.file(client)
    home("install", client, "--hooks", "--apply")
    found = json.loads(file.read_text())
    found["hooks"]["Notification"] = [{"hooks": [{"type": "command", "command": "beep"}]}]
    file.write_text(json.dumps(found, indent=4))
    home("uninstall", client, "--apply")
    left = json.loads(file.read_text())
    assert left["hooks"] == {"Notification": [{"hooks": [{"type": "command", "command": "beep"}]}]}


@CLIENT
def test_a_server_and_hooks_go_together(home: Home, client: str) -> None:
    home.file(client).parent.mkdir()
    if client == "gemini":
        home.file(client).write_text(golden(CLIENTS[client]))
    else:
        home.file(client).write_text(MINE)
    before = home.tree()
    for words in (("--hooks",), ()):
        home("install", client, *words, "--apply")
    home("uninstall", client, "--apply")
    assert home.tree() == before
    for words in ((), ("--hooks",)):
        home("install", client, *words, "--apply")
    home("uninstall", client, "--apply")
    assert home.tree() == before


def test_a_server_and_hooks_in_one_file_go_together_after_an_edit(home: Home) -> None:
    file = home.file("gemini")
    file.parent.mkdir()
    file.write_text(golden(CLIENTS["gemini"]))
    original = json.loads(file.read_text())
    home("install", "gemini", "--apply")
    file.write_text(file.read_text().rstrip() + "\n\n")
    home("install", "gemini", "--hooks", "--apply")
    home("uninstall", "gemini", "--apply")
    assert json.loads(file.read_text()) == original


def test_a_named_workspace_and_a_named_file(home: Home) -> None:
    file, workspace = home.root / "gemini.json", home.root / "work"
    workspace.mkdir()
    home("install", "gemini", "--hooks", "--file", str(file), "--workspace", str(workspace), "--apply")
    assert f"hook journal --client gemini --workspace {workspace}" in file.read_text()
    assert "mcpServers" in file.read_text()
    home("uninstall", "gemini", "--file", str(file), "--apply")
    assert not file.exists()


def test_hooks_of_a_project(home: Home) -> None:
    project = home.root / "project"
    project.mkdir()
    done = run_command(
        "install", "claude-code", "--hooks", "--project", "--apply", env=home.environ, cwd=project
    )
    assert done.returncode == 0
    assert "hook journal" in (project / ".claude" / "settings.json").read_text()
    run_command("uninstall", "claude-code", "--project", "--apply", env=home.environ, cwd=project)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("zed", "--hooks"),
        ("codex", "--hooks", "--file", "hooks.json"),
        ("codex", "cursor", "--file", "one.json"),
        ("codex", "--all"),
        ("codex", "--hooks", "--workspace", "no"),
        ("--apply",),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(home: Home, words: tuple[str, ...]) -> None:
    home("install", *words, code=2)


def test_a_broken_file_is_left_alone(home: Home) -> None:
    file = home.file("cursor")
    file.parent.mkdir()
    file.write_text('{"hooks": ')
    done = run_command("install", "cursor", "--hooks", "--apply", env=home.environ, cwd=home.root)
    assert done.returncode != 0
    assert "not valid JSON" in done.stderr
    assert file.read_text() == '{"hooks": '


def test_codex_must_trust_its_hooks_first_and_this_is_said(home: Home) -> None:
    assert "/hooks" in home("install", "codex", "--hooks", "--apply")


def test_the_state_store_is_named_in_the_entry_and_in_the_hooks(home: Home) -> None:
    for words in ((), ("--hooks",)):
        home("install", "claude-code", *words, "--state", "postgresql://db.internal/agents", "--apply")
    for name in (".claude.json", ".claude/settings.json"):
        text = (home.root / name).read_text()
        assert "--state" in text
        assert "postgresql://db.internal/agents" in text
