"""`perdure install` for every client at once: what is written, and that `perdure uninstall` leaves every byte as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_hook_install import Home

from client_cases import ALL, golden
from perdure.cli.tools import _definitions
from perdure.registry.clients import locations, permissions
from perdure.registry.clients.table import CLIENTS, Client

# One client for each kind of file is enough before a commit; the test of all clients together is quick.
QUICK = ("claude-code", "codex", "continue", "gemini")
CLIENT = pytest.mark.parametrize(
    "client",
    [
        pytest.param(client, id=client.name, marks=() if client.name in QUICK else pytest.mark.thorough)
        for client in ALL
    ],
)
EXTRAS = pytest.mark.parametrize(
    "extras",
    [(), ("--hooks",), ("--shared",), ("--hooks", "--shared", "--profile", "standard")],
    ids=" ".join,
)
SETTINGS = '{\r\n\t"permissions": {"allow": ["Bash(ls)"], "deny": []}, // mine\r\n\t"model": "opus"\r\n}'
HOOKS = '{"version": 1, "hooks": {"stop": [{"command": "say done"}]}}'


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environ = {
        name: value
        for name, value in home.environ.items()
        if name not in ("XDG_CONFIG_HOME", "APPDATA", "USERPROFILE")
    }
    return home


def server_file(home: Home, client: Client) -> Path:
    return Path(locations.user_file(client.name, home.environ))


def settings_file(home: Home, client: Client) -> Path | None:
    path = locations.hooks_file(client.name, home.environ)
    return None if path is None else Path(path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def put_existing_files(home: Home, client: Client) -> None:
    write(server_file(home, client), golden(client))
    settings = settings_file(home, client)
    if settings is not None and settings != server_file(home, client):
        write(settings, HOOKS if client.name == "cursor" else SETTINGS)


def words_of(client: Client, extras: tuple[str, ...]) -> list[str]:
    has_hooks = locations.hooks_file(client.name, {}) is not None
    return [word for word in extras if word != "--hooks" or has_hooks]


@CLIENT
@EXTRAS
@pytest.mark.parametrize("has_files", [False, True], ids=["no files", "files"])
def test_uninstall_leaves_every_byte_as_it_was(
    home: Home, client: Client, extras: tuple[str, ...], has_files: bool
) -> None:
    if has_files:
        put_existing_files(home, client)
    before = home.tree()

    home("install", client.name, *words_of(client, extras), "--apply")
    assert home.tree() != before
    home("install", client.name, "--apply")  # another form over the first one
    home("uninstall", client.name, "--apply")

    assert home.tree() == before


@pytest.mark.parametrize("has_files", [False, True], ids=["no files", "files"])
def test_all_clients_of_this_machine_are_installed_and_uninstalled_together(
    home: Home, has_files: bool
) -> None:
    for client in ALL:
        if has_files:
            put_existing_files(home, client)
        server_file(home, client).parent.mkdir(parents=True, exist_ok=True)
    home.environ["PATH"] = programs(home, "claude")
    before = home.tree()

    listed = home.report("install")["clients"]
    assert [row["client"] for row in listed] == [client.name for client in ALL]
    assert all("server" in row["would_get"] for row in listed)
    done = home.report("install", "--all", "--hooks", "--apply")["clients"]
    assert {report["action"] for report in done} == {"added"}
    assert [report["client"] for report in done if report["settings"]] == [
        "claude-code", "cursor", "codex", "gemini",
    ]  # fmt: skip
    assert [row["would_get"] for row in home.report("install")["clients"]] == [[]] * len(ALL)
    home("uninstall", "--all", "--apply")

    assert home.tree() == before


def programs(home: Home, *names: str) -> str:
    folder = home.root / "bin"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_a_list_of_clients_names_what_each_would_get(home: Home) -> None:
    home.environ["PATH"] = programs(home, "claude", "zed")
    rows = {row["client"]: row for row in home.report("install")["clients"]}
    assert rows["claude-code"]["would_get"] == ["server", "hooks", "permissions"]
    assert (rows["zed"]["would_get"], rows["zed"]["installed"]) == (["server"], "no")
    assert "perdure install --all --hooks shows the changes" in home("install")


def test_one_client_that_cannot_be_changed_keeps_no_other_from_being_changed(home: Home) -> None:
    write(home.root / ".cursor" / "mcp.json", '{"mcpServers": ')
    write(
        home.root / ".codeium" / "windsurf" / "mcp_config.json",
        '{"mcpServers": {"perdure": {"command": "x"}}}',
    )
    home("install", "cursor", "windsurf", "codex", "--apply", code=3)
    assert "perdure" in (home.root / ".codex" / "config.toml").read_text()


# --- one set of servers for all sessions ------------------------------------------------------------------------


@CLIENT
def test_a_shared_entry_attaches_in_the_clients_project(home: Home, client: Client) -> None:
    home("install", client.name, "--shared", "--profile", "core", "--apply")
    fields = client.text.servers(server_file(home, client).read_text())["perdure"]
    command = fields[client.shape.command]
    words = command if isinstance(command, list) else [command, *fields["args"]]
    where = {"project": ".", "variable": "${workspaceFolder}", "anywhere": str(home.root)}[client.start]
    tail = ["attach", "--start", "--profile", "core", "--workspace", where]
    assert words[-len(tail) :] == tail


# --- permissions ------------------------------------------------------------------------------------------------


def rules(home: Home) -> list[Any]:
    document = json.loads((home.root / ".claude" / "settings.json").read_text())
    return list(document.get("permissions", {}).get("allow", []))


def test_only_tools_that_read_and_show_no_secret_are_permitted() -> None:
    reading = {tool["name"] for tool in _definitions() if tool["annotations"].get("readOnlyHint")}
    assert set(permissions.READING) == reading - {"scratch_get", "scratch_ref"}


def test_claude_code_gets_a_rule_for_each_reading_tool_and_keeps_its_own(home: Home) -> None:
    write(home.root / ".claude" / "settings.json", '{"permissions": {"allow": ["Bash(ls)"]}}')
    home("install", "claude-code", "--apply")
    assert rules(home) == ["Bash(ls)", *(f"mcp__perdure__{tool}" for tool in permissions.READING)]


@pytest.mark.parametrize("rule", ["mcp__perdure", "mcp__perdure__*"])
def test_a_user_who_permits_all_of_perdure_gets_no_further_rule(home: Home, rule: str) -> None:
    write(home.root / ".claude" / "settings.json", json.dumps({"permissions": {"allow": [rule]}}))
    home("install", "claude-code", "--apply")
    assert rules(home) == [rule]


def test_after_an_edit_only_our_rules_go(home: Home) -> None:
    write(home.root / ".claude" / "settings.json", '{"permissions": {"allow": ["mcp__perdure__read"]}}')
    home("install", "claude-code", "--apply")
    settings = json.loads((home.root / ".claude" / "settings.json").read_text())
    settings["permissions"]["allow"].append("WebSearch")
    write(home.root / ".claude" / "settings.json", json.dumps(settings, indent=1))
    home("uninstall", "claude-code", "--apply")
    assert rules(home) == ["mcp__perdure__read", "WebSearch"]


def test_settings_that_held_only_our_rules_are_an_empty_object_after_an_edit(home: Home) -> None:
    home("install", "claude-code", "--apply")
    file = home.root / ".claude" / "settings.json"
    file.write_text(file.read_text() + "\n")
    home("uninstall", "claude-code", "--apply")
    assert json.loads(file.read_text()) == {}


def test_a_tool_that_the_user_took_off_clines_list_stays_off(home: Home) -> None:
    client, file = CLIENTS["cline"], server_file(home, CLIENTS["cline"])
    home("install", "cline", "--apply")
    document = json.loads(file.read_text())
    assert document["mcpServers"]["perdure"]["autoApprove"] == list(permissions.READING)
    document["mcpServers"]["perdure"]["autoApprove"] = ["read"]
    file.write_text(json.dumps(document))
    home("install", "cline", "--profile", "full", "--apply")
    entry = client.text.servers(file.read_text())["perdure"]
    assert (entry["autoApprove"], "--profile" in entry["args"]) == (["read"], False)


@pytest.mark.parametrize("text", ['{"permissions": []}', '{"permissions": {"allow": "all"}}', "[]"])
def test_settings_of_another_shape_are_left_alone(home: Home, text: str) -> None:
    write(home.root / ".claude" / "settings.json", text)
    home("install", "claude-code", "--apply", code=1)
    assert (home.root / ".claude" / "settings.json").read_text() == text
