"""`perdure registry import|export|sync` and `perdure install|uninstall` as people run them, for every client."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from client_cases import ALL, golden, path_of
from command_line import run_command
from perdure.registry.clients.table import CLIENTS, Client

# One client for each kind of file is enough before a commit.
QUICK = ("claude-code", "codex", "continue")
CLIENT = pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.name, marks=() if client.name in QUICK else pytest.mark.thorough)
        for client in ALL
    ],
)
SECRET = "value-of-a-secret-variable-7f3a"
LITERAL = "literal-secret"
Done = subprocess.CompletedProcess[str]

REGISTRY = """# MCP servers

## weather
command: python
args: ["server.py", "--city", "Oslo, Norway", ""]
env: API_KEY=$WEATHER_KEY
env: LEVEL=info
description: forecasts
pin: true

## far
transport: streamable-http
url: https://mcp.example.org/v1
headers: Authorization=Bearer $FAR_TOKEN

## lost
command:

## notes
command: uvx
args: ["notes", "--token", "literal-secret-note"]
enabled: false
"""


class Shell:
    """A home of its own, with the client's file and a registry in it, and secrets in the environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "RW_"))}
        secrets = dict.fromkeys(("WEATHER_KEY", "FAR_TOKEN", "PLAIN_TOKEN", "FILES_KEY", "API_KEY"), SECRET)
        self.registry = root / "mcp.md"
        places = {"HOME": root, "PERDURE_HOME": root / "home", "PERDURE_REGISTRY": self.registry}
        self.environ = {**kept, **secrets, **{name: str(place) for name, place in places.items()}}

    def __call__(self, *words: str) -> Done:
        done = run_command(*words, env=self.environ, cwd=self.root)
        assert SECRET not in done.stdout + done.stderr
        assert LITERAL not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def found(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--json").stdout)
        return found

    def file_of(self, client: Client) -> Path:
        path = self.root / path_of(client).name
        path.write_text(golden(client))
        return path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def actions(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["action"] for one in found["servers"]}


@CLIENT
def test_a_registry_goes_into_a_clients_file_and_out_again(shell: Shell, client: Client) -> None:
    path = shell.file_of(client)
    shell.registry.write_text(REGISTRY)
    shown = shell("registry", "export", client.name, "--file", str(path))
    assert (shown.returncode, "--apply writes it" in shown.stdout) == (0, True)
    assert path.read_text() == golden(client)

    done = shell.found("registry", "sync", client.name, "--file", str(path), "--apply")
    said = actions(done)
    assert (said["weather"], said["far"], said["lost"]) == ("added", "added", "skipped")
    has_switch = client.shape.enabled or client.shape.disabled
    assert said["notes"] == ("added" if has_switch else "skipped")
    assert {"name": "weather", "field": "pin", "reason": "the client has no place for it"} in done["losses"]
    assert done["applied"]
    copied = [(one["name"], one["field"]) for one in done["secrets"]]
    assert copied == ([("notes", "args 3")] if has_switch else [])
    assert SECRET not in path.read_text()

    shell.registry.write_text("# MCP servers\n")
    gone = shell("registry", "sync", client.name, "--file", str(path), "--apply")
    assert (gone.returncode, path.read_text()) == (0, golden(client))


@CLIENT
def test_a_clients_servers_come_into_the_registry_without_their_secrets(shell: Shell, client: Client) -> None:
    path = shell.file_of(client)
    shown = shell.found("registry", "import", client.name, "--file", str(path), "--dry-run")
    assert (actions(shown)["files"], shell.registry.exists()) == ("imported", False)
    assert shown["registry"] == str(shell.registry)
    done = shell.found("registry", "import", client.name, "--file", str(path))
    said = actions(done)
    assert (said["files"], said["issues" if "issues" in said else "My Notes"]) == ("imported", "imported")
    assert {"name": "files", "field": "env PLAIN_TOKEN", "variable": "PLAIN_TOKEN"} in done["secrets"]
    assert "PLAIN_TOKEN=$PLAIN_TOKEN" in shell.registry.read_text()
    assert LITERAL not in shell.registry.read_text()
    assert path.read_text() == golden(client)
    again = actions(shell.found("registry", "import", client.name, "--file", str(path)))
    assert set(again.values()) <= {"unchanged", "skipped"}
    listed = shell.found("registry", "list")["servers"]
    assert [one for one in listed if one.get("error")] == []


@CLIENT
def test_perdure_is_installed_where_the_client_looks_and_uninstalled(shell: Shell, client: Client) -> None:
    shown = shell("install", client.name)
    assert (shown.returncode, list(shell.root.iterdir())) == (0, [])
    done = shell.found("install", client.name, "--apply")
    path = Path(done["file"])
    assert (done["action"], shell.root in path.parents) == ("added", True)
    fields = client.text.servers(path.read_text())["perdure"]
    command = fields[client.shape.command]
    words = command if isinstance(command, list) else [command, *fields["args"]]
    assert os.path.isabs(words[0])
    assert words[1:5] == ["-P", "-m", "perdure", "run"]
    helped = subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60)
    assert "perdure run" in helped.stdout
    assert shell("uninstall", client.name).returncode == 0
    assert path.exists()
    assert shell.found("uninstall", client.name, "--apply")["action"] == "restored"
    assert not path.exists()


@pytest.mark.thorough
def test_conflicts_are_exit_code_3_and_say_what_is_in_the_way(shell: Shell) -> None:
    path = shell.file_of(CLIENTS["cursor"])
    shell.registry.write_text("## files\ncommand: mine\n")
    for command in ("export", "sync"):
        done = shell("registry", command, "cursor", "--file", str(path), "--apply")
        assert (done.returncode, "conflict" in done.stdout) == (3, True)
    assert path.read_text() == golden(CLIENTS["cursor"])
    done = shell("registry", "import", "cursor", "--file", str(path))
    assert (done.returncode, "it stays" in done.stdout) == (3, True)
    assert "command: mine" in shell.registry.read_text()
    path.write_text('{"mcpServers": {"perdure": {"command": "theirs"}}}')
    for command in ("install", "uninstall"):
        assert shell(command, "cursor", "--file", str(path), "--apply").returncode == 3
    assert "theirs" in path.read_text()


@pytest.mark.thorough
def test_what_cannot_be_meant_is_refused_with_its_exit_code(shell: Shell) -> None:
    shell.registry.write_text(REGISTRY)
    broken = shell.root / "broken.json"
    broken.write_text('{"mcpServers": {"x": literal-secret')
    assert shell("registry", "export", "nobody").returncode == 2
    assert shell("install", "nobody").returncode == 2
    assert shell("registry", "export", "cursor", "--apply", "--dry-run").returncode == 2
    assert shell("registry", "export", "windsurf", "--project").returncode == 2
    for command in ("export", "sync", "import"):
        refused = shell("registry", command, "cursor", "--file", str(broken))
        assert (refused.returncode, "line 1" in refused.stderr) == (1, True)
        told = shell.found("registry", command, "cursor", "--file", str(broken))
        assert told["error"] == "unreadable"
    assert shell("install", "cursor", "--file", str(broken), "--apply").returncode == 1
    assert shell("registry", "import", "cursor").returncode == 1
    shell.registry.unlink()
    no_registry = shell("registry", "sync", "cursor", "--apply")
    assert (no_registry.returncode, "no registry" in no_registry.stderr) == (1, True)


def test_secrets_are_taken_along_only_when_asked_and_that_is_said(shell: Shell) -> None:
    path = shell.file_of(CLIENTS["cursor"])
    done = shell.found("registry", "import", "cursor", "--file", str(path), "--keep-secrets")
    assert done["kept_secrets"] == [{"name": "files", "field": "env PLAIN_TOKEN", "variable": "PLAIN_TOKEN"}]
    assert "literal-secret-files-3" in shell.registry.read_text()


@pytest.mark.parametrize("bad", [{"command": "x", "args": 5}, {"command": []}, {"command": 7}, 5])
def test_a_bad_entry_of_a_client_hides_no_other(shell: Shell, bad: object) -> None:
    path = shell.root / "theirs.json"
    path.write_text(json.dumps({"mcpServers": {"bad": bad, "good": {"command": "python", "args": ["a"]}}}))
    said = actions(shell.found("registry", "import", "cursor", "--file", str(path)))
    assert said == {"bad": "skipped", "good": "imported"}


def test_an_imported_command_that_is_not_allowed_is_noted(shell: Shell) -> None:
    path = shell.root / "theirs.json"
    path.write_text(
        json.dumps({"mcpServers": {"a": {"command": "bash", "args": ["x"]}, "b": {"command": "npx"}}})
    )
    found = shell.found("registry", "import", "cursor", "--file", str(path))
    assert [(one["name"], one["field"]) for one in found["notes"]] == [("a", "command")]
    assert actions(found) == {"a": "imported", "b": "imported"}


def test_perdure_does_not_import_itself(shell: Shell) -> None:
    path = shell.file_of(CLIENTS["opencode"])
    shell("install", "opencode", "--file", str(path), "--apply")
    said = actions(shell.found("registry", "import", "opencode", "--file", str(path)))
    assert said["perdure"] == "skipped"
    assert "perdure" not in shell.registry.read_text()


def test_a_project_has_files_of_its_own(shell: Shell) -> None:
    done = shell.found("install", "vscode", "--project", "--apply")
    assert done["file"] == str(shell.root / ".vscode" / "mcp.json")
    assert (
        json.loads(Path(done["file"]).read_text())["servers"]["perdure"]["args"][-1] == "${workspaceFolder}"
    )


def test_a_home_that_cannot_be_written_is_told_and_nothing_is_changed(shell: Shell) -> None:
    path = shell.file_of(CLIENTS["cursor"])
    shell.registry.write_text("## weather\ncommand: python\n")
    (shell.root / "home").write_text("a file in the way")
    for words in (("registry", "sync"), ("registry", "export"), ("install",), ("uninstall",)):
        done = shell(*words, "cursor", "--file", str(path), "--apply")
        assert (done.returncode, done.stdout) == (4, "")
        assert shell(*words, "cursor", "--file", str(path)).returncode == 0
    assert path.read_text() == golden(CLIENTS["cursor"])
