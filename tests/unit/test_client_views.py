"""Export, sync and install on real files: what is ours follows the registry, what is not stays."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from client_cases import ALL, golden, path_of
from perdure.registry.clients import install, masked_diff
from perdure.registry.clients.client_file import ClientFile, Report
from perdure.registry.clients.ownership import Ownership
from perdure.registry.clients.plan import Wanted
from perdure.registry.clients.table import CLIENTS, Client
from perdure.registry.entry import Entry
from perdure.registry.errors import Unreadable
from perdure.registry.templates import Template

CLIENT = pytest.mark.parametrize("client", ALL, ids=lambda one: one.name)
SECRET = "literal-secret"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def entry(name: str, *args: str, **fields: Any) -> Entry:
    return Entry(name=name, command=Template("python"), args=tuple(map(Template, args)), **fields)


class File:
    """One client's file, as the client wrote it, and the registry that is told to it."""

    def __init__(self, client: Client, folder: Path, text: str | None = None) -> None:
        self.client = client
        self.path = folder / path_of(client).name
        self.before = golden(client) if text is None else text
        self.path.write_text(self.before, encoding="utf-8", newline="")
        self.source = "registry"

    @property
    def text(self) -> str:
        return self.path.read_bytes().decode()

    @property
    def servers(self) -> dict[str, Any]:
        return self.client.text.servers(self.text)

    def export(self, *entries: Entry, **options: Any) -> dict[str, str]:
        return self.run(*entries, sync=False, **options)

    def sync(self, *entries: Entry, **options: Any) -> dict[str, str]:
        return self.run(*entries, sync=True, **options)

    def run(
        self, *entries: Entry, sync: bool, broken: dict[str, str] | None = None, **options: Any
    ) -> dict[str, str]:
        self.report = self.reported(Wanted(self.source, entries, broken or {}), sync, **options)
        return {step.name: step.action for step in self.report.steps}

    def reported(self, want: Wanted, sync: bool, *, apply: bool = True, overwrite: bool = False) -> Report:
        return ClientFile(self.client, str(self.path)).export(
            want, sync=sync, overwrite=overwrite, apply=apply
        )

    def edit(self, name: str, field: str, value: Any) -> None:
        """As a person would, in an editor."""
        self.path.write_text(self.client.text.with_field(self.text, name, field, value), newline="")

    def args_of(self, name: str) -> list[str]:
        fields = self.servers[name]
        shape = self.client.shape
        return list(fields[shape.args] if shape.args else fields[shape.command][1:])


@pytest.fixture
def file(client: Client, tmp_path: Path) -> File:
    return File(client, tmp_path)


@CLIENT
def test_nothing_is_written_unless_asked(file: File, home: Path) -> None:
    assert file.export(entry("weather"), apply=False) == {"weather": "added"}
    assert "+" in file.report.diff
    assert "weather" in file.report.diff
    assert file.text == file.before
    assert not home.exists()


@CLIENT
def test_a_server_is_added_kept_in_step_and_taken_out_again_and_the_file_is_as_before(file: File) -> None:
    others = file.servers
    assert file.sync(entry("weather", "--city", "Oslo, Norway", "")) == {"weather": "added"}
    assert file.args_of("weather") == ["--city", "Oslo, Norway", ""]
    assert file.sync(entry("weather", "--city", "Oslo, Norway", "")) == {"weather": "unchanged"}
    assert not file.report.changed
    assert file.sync(entry("weather", "--city", "Bergen")) == {"weather": "updated"}
    assert file.args_of("weather") == ["--city", "Bergen"]
    assert {name: one for name, one in file.servers.items() if name != "weather"} == others
    assert file.sync() == {"weather": "removed"}
    assert file.text == file.before
    assert Ownership(file.client.name, str(file.path)).read().entries == {}


@CLIENT
def test_what_was_edited_there_is_a_conflict_and_stays(file: File) -> None:
    file.sync(entry("weather"), entry("tides"))
    file.edit("weather", file.client.shape.command, "mine")
    edited = file.text
    assert file.sync(entry("weather", "new"), entry("tides")) == {"weather": "conflict", "tides": "unchanged"}
    assert file.export(entry("weather", "new"), entry("tides"))["weather"] == "conflict"
    assert file.sync(entry("tides")) == {"weather": "conflict", "tides": "unchanged"}
    assert file.text == edited
    assert file.sync(entry("weather", "new"), overwrite=True) == {"weather": "updated", "tides": "removed"}
    assert file.args_of("weather") == ["new"]


@CLIENT
def test_what_is_not_ours_is_never_touched(file: File) -> None:
    assert file.sync(entry("files"), entry("weather")) == {"files": "conflict", "weather": "added"}
    assert file.sync(entry("weather")) == {"weather": "unchanged"}
    assert file.sync() == {"weather": "removed"}
    assert file.text == file.before


@CLIENT
def test_what_a_client_keeps_for_itself_in_our_entry_stays_and_is_no_edit(file: File) -> None:
    file.sync(entry("weather"))
    file.edit("weather", "autoApprove", ["forecast"])
    assert file.sync(entry("weather", "more")) == {"weather": "updated"}
    assert file.servers["weather"]["autoApprove"] == ["forecast"]
    assert file.args_of("weather") == ["more"]


@pytest.mark.parametrize("client", [CLIENTS["cline"]])
def test_a_client_that_writes_out_what_is_so_anyway_has_edited_nothing(file: File) -> None:
    file.sync(entry("weather"))
    for field, value in (("disabled", False), ("type", "stdio"), ("env", {}), ("autoApprove", [])):
        file.edit("weather", field, value)
    assert file.sync(entry("weather")) == {"weather": "unchanged"}
    assert file.sync(entry("weather", "more")) == {"weather": "updated"}
    file.edit("weather", "disabled", True)
    assert file.sync(entry("weather", "other")) == {"weather": "conflict"}


@CLIENT
def test_what_a_person_removed_there_comes_back_only_when_asked_for(file: File) -> None:
    file.sync(entry("weather"))
    file.path.write_text(file.client.text.without_entries(file.text, ["weather"]), newline="")
    assert file.sync(entry("weather")) == {"weather": "conflict"}
    assert "weather" not in file.servers
    assert file.export(entry("weather")) == {"weather": "added"}
    assert file.sync(entry("weather")) == {"weather": "unchanged"}


@CLIENT
def test_export_takes_nothing_out(file: File) -> None:
    file.export(entry("weather"))
    assert file.export(entry("tides")) == {"tides": "added"}
    assert {"weather", "tides"} <= set(file.servers)


@pytest.mark.parametrize("client", [CLIENTS["cursor"]])
def test_an_entry_that_cannot_be_read_is_no_reason_to_remove_it(file: File) -> None:
    file.sync(entry("weather"))
    assert file.sync(broken={"weather": "a bad line"}) == {"weather": "skipped"}
    assert "weather" in file.servers


@pytest.mark.parametrize("client", [CLIENTS["cursor"]])
def test_another_registry_has_no_say_in_what_was_written_from_this_one(file: File) -> None:
    file.sync(entry("weather"))
    file.source = "another"
    assert file.sync(entry("tides")) == {"tides": "added"}
    assert file.sync(entry("weather", "x"), entry("tides")) == {"weather": "conflict", "tides": "unchanged"}
    file.source = "registry"
    assert file.sync() == {"weather": "removed"}
    assert "tides" in file.servers


@pytest.mark.parametrize("client", [CLIENTS["vscode"]])
def test_a_folder_beside_the_registry_is_the_same_one_for_a_client(file: File) -> None:
    file.source = "/home/ann/mcp.md"
    file.sync(entry("weather", cwd=Template("./tools")), entry("tides", cwd=Template("$DIR/x")))
    assert file.servers["weather"]["cwd"] == "/home/ann/tools"
    assert file.servers["tides"]["cwd"] == "${env:DIR}/x"


@pytest.mark.parametrize("client", [CLIENTS["claude-code"]])
def test_a_server_that_is_switched_off_is_taken_out_of_a_client_without_a_switch(file: File) -> None:
    file.sync(entry("weather"))
    assert file.sync(entry("weather", enabled=False)) == {"weather": "removed"}
    assert file.text == file.before


@CLIENT
def test_a_file_that_is_not_there_is_made(client: Client, tmp_path: Path) -> None:
    file = File(client, tmp_path)
    file.path.unlink()
    file.path = tmp_path / "deep" / file.path.name
    assert file.sync(entry("weather")) == {"weather": "added"}
    assert set(file.servers) == {"weather"}
    file.path.unlink()
    assert file.sync(entry("weather")) == {"weather": "added"}


@CLIENT
def test_mode_symbolic_link_byte_order_mark_and_line_ends_are_kept(client: Client, tmp_path: Path) -> None:
    file = File(client, tmp_path, "\ufeff" + golden(client).replace("\n", "\r\n"))
    real = tmp_path / "real"
    file.path.rename(real)
    file.path.symlink_to(real.name)
    real.chmod(0o640)
    before = real.read_bytes()
    file.sync(entry("weather"))
    changed = real.read_bytes()
    assert file.path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert changed.startswith("\ufeff".encode())
    assert changed.count(b"\n") == changed.count(b"\r\n") > before.count(b"\n")
    file.sync()
    assert real.read_bytes() == before


@CLIENT
def test_a_file_that_cannot_be_read_is_left_alone_and_not_quoted(client: Client, tmp_path: Path) -> None:
    for broken in (f"{{ [ : {SECRET}\n\t= ]]", f'{golden(client)}\n"{SECRET}'):
        file = File(client, tmp_path, broken)
        with pytest.raises(Unreadable) as refusal:
            file.sync(entry("weather"))
        assert SECRET not in f"{refusal.value} {refusal.value.hint}"
        assert file.text == broken


@CLIENT
def test_the_old_content_is_kept_as_a_backup_for_its_owner_alone(file: File) -> None:
    file.sync(entry("weather"))
    backup = Path(file.report.backup)
    assert backup.read_text() == file.before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


# --- what is shown -----------------------------------------------------------------------------------------------


@CLIENT
def test_a_diff_shows_no_secret_of_anybody(file: File) -> None:
    assert SECRET in file.before
    assert SECRET not in masked_diff.mask_text(file.client, file.before)
    emptied = "".join(f"{line} " for line in file.before.splitlines(keepends=True))
    assert SECRET not in masked_diff.make_diff(file.client, file.before, emptied, "f")
    hidden = {"API_KEY": Template("literal-secret-of-ours"), "LEVEL": Template("literal-secret-level")}
    file.export(entry("weather", "--token", "literal-secret-arg", env=hidden), apply=False)
    assert SECRET not in file.report.diff
    assert "[redacted]" in file.report.diff


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (
            CLIENTS["continue"],
            "mcpServers:\n- name: a\n  env:\n    K: |\n      literal-secret\n      literal-secret\n  command: x\n",
        ),
        (
            CLIENTS["codex"],
            '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nK = """\nliteral-secret\nliteral-secret\n"""\nL = 1\n',
        ),
    ],
)
def test_a_secret_over_several_lines_is_hidden_on_each(client: Client, text: str) -> None:
    shown = masked_diff.mask_text(client, text)
    assert SECRET not in shown
    assert shown.count("\n") == text.count("\n")
    lines = text.splitlines(keepends=True)
    for number in range(len(lines)):
        changed = "".join([*lines[:number], "# new\n" if number < 2 else "", *lines[number:]])
        assert SECRET not in masked_diff.make_diff(client, text, changed, "f")


@CLIENT
def test_a_secret_that_changed_shows_as_changed_and_not_as_itself(file: File) -> None:
    file.sync(entry("weather", env={"API_KEY": Template("literal-secret-one")}))
    file.sync(entry("weather", env={"API_KEY": Template("literal-secret-two")}), apply=False)
    changed = [line for line in file.report.diff.splitlines()[2:] if line[0] in "+-"]
    assert len(changed) == 2
    assert SECRET not in file.report.diff


@CLIENT
def test_a_diff_shows_references_and_plain_words(file: File) -> None:
    file.export(entry("weather", "--city", "Oslo", env={"K": Template("$WEATHER_KEY")}), apply=False)
    assert "Oslo" in file.report.diff
    if file.client.shape.references.form:
        assert "WEATHER_KEY" in file.report.diff


# --- Perdure itself ------------------------------------------------------------------------------------------------


def fields_of(client: Client, *words: str) -> dict[str, Any]:
    return install.own_fields(client, words or ("/opt/perdure",), "/work space")


@CLIENT
def test_a_workspace_that_was_chosen_is_the_one_it_writes_to(file: File) -> None:
    fields = install.own_fields(file.client, ("/opt/perdure",), "/work space", is_chosen=True)
    assert "/work space" in str(fields)
    assert install.WORKSPACE not in str(fields)


@CLIENT
def test_perdure_is_put_in_and_taken_out_byte_for_byte(file: File) -> None:
    done = install.install(file.client, str(file.path), fields_of(file.client), apply=True)
    assert (done.action, done.changed) == ("added", True)
    assert "run" in json.dumps(file.servers["perdure"])
    again = install.install(file.client, str(file.path), fields_of(file.client), apply=True)
    assert (again.action, again.changed) == ("unchanged", False)
    moved = install.install(file.client, str(file.path), fields_of(file.client, "/new"), apply=True)
    assert moved.action == "updated"
    gone = install.uninstall(file.client, str(file.path), apply=True)
    assert gone.action == "restored"
    assert file.text == file.before
    assert install.uninstall(file.client, str(file.path), apply=True).action == "absent"


@CLIENT
def test_of_a_file_that_was_edited_since_only_our_entry_is_taken_out(file: File) -> None:
    install.install(file.client, str(file.path), fields_of(file.client), apply=True)
    file.edit("files", "note", "mine")
    others = {name: one for name, one in file.servers.items() if name != "perdure"}
    gone = install.uninstall(file.client, str(file.path), apply=True)
    assert (gone.action, "edited since" in gone.reason) == ("removed", True)
    assert file.servers == others


@CLIENT
def test_an_entry_of_ours_that_was_edited_is_left_alone(file: File) -> None:
    install.install(file.client, str(file.path), fields_of(file.client), apply=True)
    file.edit("perdure", file.client.shape.command, "mine")
    edited = file.text
    assert install.uninstall(file.client, str(file.path), apply=True).action == "conflict"
    assert (
        install.install(file.client, str(file.path), fields_of(file.client), apply=True).action == "conflict"
    )
    assert file.text == edited


@CLIENT
def test_a_file_that_perdure_made_is_removed_again_with_its_folders(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / path_of(client).name
    install.install(client, str(path), fields_of(client), apply=True)
    assert "perdure" in client.text.servers(path.read_text())
    shown = install.uninstall(client, str(path), apply=False)
    assert (shown.action, path.exists()) == ("restored", True)
    assert install.uninstall(client, str(path), apply=True).action == "restored"
    assert not (tmp_path / "a").exists()


def test_a_folder_in_which_somebody_put_something_stays(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "mcp.json"
    install.install(CLIENTS["cursor"], str(path), fields_of(CLIENTS["cursor"]), apply=True)
    (path.parent / "theirs").touch()
    install.uninstall(CLIENTS["cursor"], str(path), apply=True)
    assert os.listdir(path.parent) == ["theirs"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("claude-code", ["run"]),
        ("codex", ["run"]),
        ("cursor", ["run", "--profile", "core", "--workspace", "${workspaceFolder}"]),
        ("vscode", ["run", "--profile", "core", "--workspace", "${workspaceFolder}"]),
        ("claude-desktop", ["run", "--profile", "core", "--workspace", "/work space"]),
        ("opencode", ["/opt/perdure", "run", "--profile", "core"]),
    ],
)
def test_perdure_is_told_its_workspace_and_profile_as_fits_the_client(name: str, words: list[str]) -> None:
    client = CLIENTS[name]
    fields = fields_of(client)
    assert fields[client.shape.args or client.shape.command] == words
    assert not {client.shape.env, client.shape.headers[0]} & set(fields)


@CLIENT
def test_a_profile_that_was_chosen_is_the_one_it_lists(file: File) -> None:
    for profile, named in (("full", ""), ("standard", "standard"), ("core", "core")):
        fields = install.own_fields(file.client, ("/opt/perdure",), "/work space", profile=profile)
        words = fields[file.client.shape.args or file.client.shape.command]
        assert ("--profile" in words) == bool(named)
        assert not named or words[words.index("--profile") + 1] == named


HUGE = "1" * 6000
ODD = [
    (
        "cursor",
        '{"mcpServers": {"d": {"command": "x", "y": ' + "[" * 400 + "// c\n" + "]" * 400 + "}}}",
        None,
    ),
    ("cursor", '{"mcpServers": {}, "y": ' + "[" * 900 + "]" * 900 + "}", "not valid JSON"),
    ("cursor", '{"n": ' + HUGE + ', "mcpServers": {"m": {"command": "x"}}}', "not valid JSON"),
    ("cursor", "[" * 5000, "not valid JSON"),
    ("codex", "x = " + "[" * 2000 + "]" * 2000 + "\n", "nested too deeply"),
    ("codex", f"x = {HUGE}\n", "too many digits"),
    ("continue", "a: &a [*a]\nmcpServers: []\n", "nested too deeply"),
    ("continue", "x: " + "[" * 900 + "]" * 900 + "\nmcpServers: []\n", "not valid YAML"),
]


@pytest.mark.parametrize(("name", "text", "problem"), ODD, ids=lambda one: str(one)[:24])
def test_a_file_that_is_too_much_to_read_is_told_and_left_alone(
    tmp_path: Path, name: str, text: str, problem: str | None
) -> None:
    file = File(CLIENTS[name], tmp_path, text)
    if problem is None:
        assert file.export(entry("new")) == {"new": "added"}
        assert file.text.startswith(text[: text.index("// c")])
        return
    with pytest.raises(Unreadable, match=problem):
        file.export(entry("new"))
    assert file.text == text
