"""`mcp.md` and `mcp.json` as people write them: what is read, what is quarantined, and what no change touches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from perdure.registry.allowed_commands import is_allowed
from perdure.registry.entry import Entry
from perdure.registry.errors import Quarantined, RegistryError, Unreadable
from perdure.registry.file import backups
from perdure.registry.file.backend import FileBackend, open_json, open_markdown
from perdure.registry.file.mcp_json import JsonDocument
from perdure.registry.file.mcp_md import MarkdownDocument
from perdure.registry.templates import Template

SAMPLE = """\
# MCP servers

What we use, and why.

## weather
Prose about it: see https://weather.test for more.
command: python
args: ["server.py", "--city", "Oslo, Norway"]
cwd: ./tools
env: API_KEY=$WEATHER_KEY, LEVEL=info
env: "LIST=a,b"
description: one line
transport: stdio
enabled: true
start: lazy
timeout: startup=15, call=60, idle=600
tools: allow=forecast,alerts
replay: declared
replay charge: probe find_charge {"key": "/key"}
replay send: never
pin: true
owner: somebody

### a heading of its own

## plain
command: npx
args: -y, @scope/pkg ,, x

## Allowed commands
python  # ours
- npx
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


def markdown(folder: Path, text: str | bytes = SAMPLE) -> FileBackend:
    path = folder / "mcp.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_markdown(str(path), os.environ)


def entry(name: str, **more: object) -> Entry:
    return Entry(**{"name": name, "command": Template("python"), **more})  # type: ignore[arg-type]


def text_of(backend: FileBackend) -> bytes:
    return Path(backend.path).read_bytes()


# --- reading -----------------------------------------------------------------------------------------------


def test_every_key_of_the_format_is_read(tmp_path: Path) -> None:
    found = markdown(tmp_path).load("weather")
    assert [arg.text for arg in found.args] == ["server.py", "--city", "Oslo, Norway"]
    assert {name: value.text for name, value in found.env.items()} == {
        "API_KEY": "$WEATHER_KEY",
        "LEVEL": "info",
        "LIST": "a,b",
    }
    assert (found.timeouts.startup, found.timeouts.call, found.timeouts.idle) == (15, 60, 600)
    assert found.tools.allow == ("forecast", "alerts")
    assert found.replay.mode == "declared"
    assert set(found.replay.tools) == {"charge", "send"}
    assert found.start == "lazy"
    assert found.pin
    assert found.extra == {"owner": "somebody"}
    assert [arg.text for arg in markdown(tmp_path).load("plain").args] == ["-y", "@scope/pkg", "x"]


def test_what_stands_in_a_fence_or_a_comment_is_no_server(tmp_path: Path) -> None:
    text = (
        "```\n## fenced\ncommand: node\n```\n<!--\n## commented\ncommand: node\n-->\n## real\ncommand: node\n"
    )
    assert [ref.name for ref in markdown(tmp_path, text).list_servers()] == ["real"]


def test_a_fence_that_is_never_closed_hides_nothing(tmp_path: Path) -> None:
    text = "## a\ncommand: node\n```\n## b\ncommand: node\n"
    assert [ref.name for ref in markdown(tmp_path, text).list_servers()] == ["a", "b"]


def test_a_byte_order_mark_hides_no_section(tmp_path: Path) -> None:
    assert [ref.name for ref in markdown(tmp_path, "\ufeff## a\ncommand: node\n").list_servers()] == ["a"]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("## bad\nprose only\n", "command is missing"),
        ("## bad\ncommand: x\nargs: [1]\n", "args is not a JSON list"),
        ("## bad\ncommand: x\nargs: [\n", "args is not a JSON list"),
        ("## bad\ncommand: x\nenv: A\n", "without ="),
        ('## bad\ncommand: x\nenv: K="v,w"\n', "without ="),
        ("## bad\ncommand: x\nenabled: maybe\n", "neither true nor false"),
        ("## bad\ncommand: x\ntimeout: call=soon\n", "not a number"),
        ("## bad\ncommand: x\ntimeout: naps=1\n", "something else"),
        ("## bad\ncommand: x\ntools: some\n", "neither allow"),
        ("## bad\ncommand: x\nreplay: perhaps\n", "replay is not known"),
        ("## bad\ncommand: x\nreplay t: probe\n", "neither convergent"),
        ("## bad\ncommand: x\ntransport: pigeon\n", "transport is not known"),
        ("## bad\ntransport: sse\n", "url is missing"),
        ("## bad\u0085\ncommand: x\n", "line break"),
        ("## bad name\ncommand: x\n", "not a usable name"),
        ("## bad\ncommand: a\u2028b\n", "line break"),
    ],
)
def test_a_section_with_a_problem_is_listed_with_it_and_hides_no_other(
    tmp_path: Path, section: str, problem: str
) -> None:
    backend = markdown(tmp_path, f"## before\ncommand: node\n{section}## after\ncommand: node\n")
    refs = {ref.name: ref.error for ref in backend.list_servers()}
    assert refs["before"] == refs["after"] == ""
    bad = next(error for name, error in refs.items() if name.startswith("bad"))
    assert problem in bad
    assert [one.name for one in backend.load_all()] == ["after", "before"]


def test_a_problem_is_said_in_the_same_words_everywhere(tmp_path: Path) -> None:
    backend = markdown(tmp_path, "## bad\nargs: x\n")
    with pytest.raises(Quarantined) as caught:
        backend.load("bad")
    assert backend.validate("bad").errors == (caught.value.message,)
    assert backend.list_servers()[0].error in caught.value.message


def test_of_duplicate_sections_the_first_is_the_entry(tmp_path: Path) -> None:
    backend = markdown(tmp_path, "## x\ncommand: one\n## y\ncommand: two\n## x\ncommand: three\n")
    assert [(ref.name, ref.error) for ref in backend.list_servers()] == [
        ("x", ""),
        ("x", "duplicate"),
        ("y", ""),
    ]
    assert backend.load("x").command == Template("one")
    assert [one.name for one in backend.load_all()] == ["x", "y"]
    backend.uninstall("x")
    assert text_of(backend) == b"## y\ncommand: two\n"


def test_bytes_that_are_not_utf_8_spoil_their_own_section_only(tmp_path: Path) -> None:
    data = b"## a\ncommand: node\n## b\ncommand: caf\xe9\n## c\ncommand: node\n"
    backend = markdown(tmp_path, data)
    assert [(ref.name, ref.error) for ref in backend.list_servers()] == [
        ("a", ""),
        ("b", "not UTF-8"),
        ("c", ""),
    ]
    backend.install(entry("d"))
    assert text_of(backend).startswith(data)


# --- allowed commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "command", "allowed"),
    [
        ("", "npx", True),
        ("", "bash", False),
        ("", "/usr/bin/python3", True),
        ("## Allowed commands\n", "npx", False),
        ("## ALLOWED Commands\nbash # ours\n", "bash", True),
        ("## Allowed commands\nbash\n", "npx", False),
        ("## Allowed commands\n- `bash`\n", "bash", True),
        ("## Allowed commands\n### more\nbash\n", "bash", False),
        ("## Allowed commands\na\nb\n## Allowed commands\nb\n", "a", False),
    ],
)
def test_the_allowed_commands_replace_the_default(text: str, command: str, allowed: bool) -> None:
    assert is_allowed(command, MarkdownDocument(text).allowed) is allowed


def test_an_installed_or_removed_server_leaves_the_allowed_commands(tmp_path: Path) -> None:
    backend = markdown(tmp_path, "# MCP servers\n\n## Allowed commands\n")
    backend.install(entry("a"))
    assert backend.read().allowed == frozenset()
    assert not backend.validate("a").ok
    backend.uninstall("a")
    assert text_of(backend) == b"# MCP servers\n\n## Allowed commands\n"


# --- what no change touches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_install_and_uninstall_leave_every_other_byte(tmp_path: Path, newline: str, mark: str) -> None:
    data = (mark + SAMPLE).replace("\n", newline).encode()
    backend = markdown(tmp_path, data)
    backend.install(entry("new", description="d"))
    assert (
        text_of(backend)
        == data + newline.join(["", "## new", "description: d", "command: python", ""]).encode()
    )
    backend.uninstall("new")
    assert text_of(backend) == data
    backend.uninstall("plain")
    assert text_of(backend) == data.replace(
        newline.join(["## plain", "command: npx", "args: -y, @scope/pkg ,, x", "", ""]).encode(), b""
    )


def test_a_file_without_a_last_line_ending_gets_one(tmp_path: Path) -> None:
    backend = markdown(tmp_path, "## a\ncommand: node")
    backend.install(entry("b"))
    assert text_of(backend) == b"## a\ncommand: node\n\n## b\ncommand: python\n"


def test_disabling_changes_one_word_or_adds_one_line(tmp_path: Path) -> None:
    backend = markdown(tmp_path)
    backend.set_enabled("weather", False)
    assert text_of(backend).decode() == SAMPLE.replace("enabled: true", "enabled: false")
    backend.set_enabled("weather", True)
    assert text_of(backend).decode() == SAMPLE
    backend.set_enabled("plain", True)
    assert text_of(backend).decode() == SAMPLE
    backend.set_enabled("plain", False)
    assert text_of(backend).decode() == SAMPLE.replace("command: npx\n", "command: npx\nenabled: false\n")


def test_replacing_an_entry_writes_only_the_keys_that_differ(tmp_path: Path) -> None:

    backend = markdown(tmp_path)
    old = backend.load("weather")
    env = {**old.env, "LEVEL": Template("debug")}
    backend.replace(structs.replace(old, env=env, description="", title="T"))
    wanted = SAMPLE.replace("description: one line\n", "").replace(
        'env: API_KEY=$WEATHER_KEY, LEVEL=info\nenv: "LIST=a,b"\n',
        'env: API_KEY=$WEATHER_KEY\nenv: LEVEL=debug\nenv: "LIST=a,b"\n',
    )
    assert text_of(backend).decode() == wanted.replace("owner: somebody\n", "owner: somebody\ntitle: T\n")


@pytest.mark.parametrize("name", ["mcp.md", "mcp.json"])
def test_many_are_installed_in_one_change_as_they_would_be_one_by_one(tmp_path: Path, name: str) -> None:
    opener = open_markdown if name == "mcp.md" else open_json
    together, apart = (opener(str(tmp_path / folder / name), os.environ) for folder in ("together", "apart"))
    entries = [entry(f"server-{number}", description="d") for number in range(5)]
    for backend in (together, apart):
        backend.install(structs.replace(entries[2], description="there before"))
    assert together.install_all(entries) == ("server-2",)
    for one in (*entries[:2], *entries[3:]):
        apart.install(one)
    assert text_of(together) == text_of(apart)
    assert together.load("server-2").description == "there before"
    kept = backups.folder(os.path.realpath(together.path))
    assert len(os.listdir(kept)) == 1  # one backup for one change; the first install found no file
    assert together.install_all(entries) == tuple(one.name for one in entries)


def test_mode_and_symbolic_link_stay(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "servers.md"
    real.parent.mkdir()
    real.write_text("## a\ncommand: node\n")
    real.chmod(0o640)
    link = tmp_path / "mcp.md"
    link.symlink_to(real)
    open_markdown(str(link), os.environ).install(entry("b"))
    assert link.is_symlink()
    assert "## b" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert os.listdir(real.parent) == ["servers.md"]


def test_uninstalling_where_there_is_nothing_makes_nothing(tmp_path: Path) -> None:
    open_markdown(str(tmp_path / "no" / "mcp.md"), os.environ).uninstall("a")
    assert sorted(os.listdir(tmp_path)) == []


def test_the_old_content_is_backed_up(tmp_path: Path) -> None:
    backend = markdown(tmp_path)
    backend.uninstall("weather")
    kept = [path.read_text() for path in (tmp_path / "home" / "backups").rglob("*-*") if path.is_file()]
    assert kept == [SAMPLE]


def test_a_registry_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mcp.md"
    path.mkdir()
    backend = open_markdown(str(path), os.environ)
    assert not backend.capabilities.supports_install
    with pytest.raises(Unreadable):
        backend.install(entry("a"))


# --- mcp.json --------------------------------------------------------------------------------------------------

JSONC = """\
{
    // ours
    "mcpServers": {
        "a": {"command": "npx", "args": ["-y", "x"], "env": {"K": "$V"}, "alwaysAllow": ["t"]}, // first
        "bad": {"args": 3},
        "remote": {
            "type": "http",
            "url": "https://host.test/mcp",
            "headers": {"Authorization": "Bearer $TOK"},
        },
    },
    "perdure": {"allowedCommands": ["npx"]},
}
"""


def json_file(folder: Path, text: str = JSONC) -> FileBackend:
    path = folder / "mcp.json"
    path.write_text(text)
    return open_json(str(path), os.environ)


def test_a_json_registry_is_read_and_one_bad_entry_hides_no_other(tmp_path: Path) -> None:
    backend = json_file(tmp_path)
    assert [(ref.name, bool(ref.error)) for ref in backend.list_servers()] == [
        ("a", False),
        ("bad", True),
        ("remote", False),
    ]
    assert backend.load("remote").transport == "streamable-http"
    assert backend.load("a").extra == {"alwaysAllow": ["t"]}
    assert backend.read().allowed == {"npx"}


def test_a_change_of_a_json_registry_leaves_every_other_byte(tmp_path: Path) -> None:
    backend = json_file(tmp_path)
    backend.install(entry("new"))
    added = '        "new": {\n            "command": "python"\n        },\n'
    assert text_of(backend).decode() == JSONC.replace("        },\n    },", f"        }},\n{added}    }},")
    backend.uninstall("new")
    assert text_of(backend).decode() == JSONC
    backend.set_enabled("a", False)
    assert text_of(backend).decode() == JSONC.replace('["t"]}', '["t"], "disabled": true}')


def test_of_duplicate_keys_the_first_is_the_entry(tmp_path: Path) -> None:
    backend = json_file(tmp_path, '{"mcpServers": {"x": {"command": "one"}, "x": {"command": "two"}}}')
    assert backend.load("x").command == Template("one")
    backend.set_enabled("x", False)
    assert backend.load("x").enabled is False
    backend.uninstall("x")
    assert backend.list_servers() == []


@pytest.mark.parametrize("text", ["[]", "{", '{"mcpServers": []}', '{"mcpServers": {"a": {}}} x'])
def test_what_is_no_registry_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    backend = json_file(tmp_path, text)
    with pytest.raises(RegistryError):
        backend.install(entry("a"))
    assert text_of(backend).decode() == text


# --- the documents ----------------------------------------------------------------------------------------------


def test_every_key_of_the_format_is_explained_and_its_example_is_sound() -> None:
    from perdure.registry.file.mcp_md_fields import KEYS

    text = (Path(__file__).parents[2] / "docs" / "reference" / "registry.md").read_text()
    assert [key for key in KEYS if f"| `{key}` |" not in text] == []
    example = MarkdownDocument(text.split("```\n")[1])
    assert [slot.error for slot in example.slots] == [""]
    assert example.allowed == {"python"}


@pytest.mark.parametrize("servers", ["{,}", "[,]", '{"a": {"args": [,]}}', '{"a": {,}}'])
def test_a_comma_without_a_value_is_told_as_broken_json(servers: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(f'{{"mcpServers": {servers}}}')
    with pytest.raises(Unreadable, match="not JSON: line 1, column"):
        open_json(str(path), os.environ).list_servers()


def test_of_two_servers_with_one_name_the_first_counts_and_the_other_is_told() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}'
    first, second = JsonDocument(text).slots
    assert first.entry is not None
    assert first.entry.command is not None
    assert first.entry.command.text == "x"
    assert (second.entry, second.error) == (None, "duplicate")


@pytest.mark.parametrize("text", ["[]", "7", '{"mcpServers": []}', '{"mcpServers": null}'])
def test_a_json_file_without_an_object_of_servers_is_told(text: str) -> None:
    with pytest.raises(Unreadable, match="holds no object mcpServers"):
        JsonDocument(text)


@pytest.mark.parametrize("depth", [150, 490, 600, 5000, 200_000])
def test_a_json_registry_however_deep_is_read_or_told(depth: int) -> None:
    text = '{"mcpServers": {"a": {"command": "npx", "x": ' + "[" * depth + "/* c */" + "]" * depth + "}}}"
    if depth < 500:
        assert [slot.name for slot in JsonDocument(text).slots if slot.entry is not None] == ["a"]
    else:
        with pytest.raises(Unreadable, match="nested too deeply"):
            JsonDocument(text)
