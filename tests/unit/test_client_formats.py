"""Every client's format, there and back: what is said is what is heard, and what cannot be said is named."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from client_cases import ALL, entries, golden
from perdure.cli.client_option import NAMES
from perdure.registry.clients import locations
from perdure.registry.clients.codec import Undecodable, decode_entry, encode_entry, usable_name
from perdure.registry.clients.plan import put_entry
from perdure.registry.clients.references import (
    LITERAL_ONLY,
    Unrepresentable,
    format_template,
    meaning,
    parse_template,
)
from perdure.registry.clients.table import CLIENTS, Client
from perdure.registry.entry import Entry, check_name
from perdure.registry.portable import IN_USE, move_secrets
from perdure.registry.templates import Template

CLIENT = pytest.mark.parametrize("client", ALL, ids=lambda one: one.name)


def local(name: str = "weather", **fields: object) -> Entry:
    return Entry(**{"name": name, "command": Template("python"), **fields})  # type: ignore[arg-type]


def remote(**headers: str) -> Entry:
    texts = {name.replace("_", "-"): Template(value) for name, value in headers.items()}
    return Entry(
        name="far", transport="streamable-http", url=Template("https://mcp.example.org/"), headers=texts
    )


def test_the_command_line_knows_every_client_of_the_table() -> None:
    assert list(NAMES) == list(CLIENTS)


@CLIENT
@settings(max_examples=60, deadline=None)
@given(entry=entries())
def test_an_entry_comes_back_from_a_clients_file_as_it_was_but_for_what_is_named_lost(
    client: Client, entry: Entry
) -> None:
    assume(entry.name not in client.text.servers(golden(client)))
    try:
        told = encode_entry(client, entry)
    except Unrepresentable:
        return
    text = put_entry(client, golden(client), entry.name, None, told.fields)
    back = decode_entry(client, entry.name, client.text.servers(text)[entry.name]).entry
    lost = {loss.field for loss in told.losses}
    assert back.enabled == entry.enabled
    assert [meaning(one) for one in back.args] == [meaning(one) for one in entry.args]
    for one, other in ((back.command, entry.command), (back.url, entry.url)):
        assert (one and meaning(one)) == (other and meaning(other))
    kept = {name: meaning(value) for name, value in entry.env.items() if f"env {name}" not in lost}
    assert {name: meaning(value) for name, value in back.env.items()} == kept
    kept = {name: meaning(value) for name, value in entry.headers.items() if f"headers {name}" not in lost}
    assert {name: meaning(value) for name, value in back.headers.items()} == kept
    assert "transport" in lost or back.transport == entry.transport
    for field in ("startup", "call"):
        expected = None if f"timeout {field}" in lost else getattr(entry.timeouts, field)
        assert getattr(back.timeouts, field) == expected
    assert "tools allow" in lost or back.tools.allow == entry.tools.allow
    assert "tools deny" in lost or back.tools.deny == entry.tools.deny
    assert "required" in lost or back.required == entry.required
    assert "description" in lost or back.description == " ".join(entry.description.split())
    assert ("pin" in lost) == entry.pin


@CLIENT
def test_what_a_client_has_no_place_for_is_named_field_by_field(client: Client) -> None:
    entry = local(pin=True, start="lazy", title="Weather", cwd=Template("./tools"))
    lost = {loss.field: loss.reason for loss in encode_entry(client, entry).losses}
    assert {"pin", "start", "title"} <= set(lost)
    assert ("cwd" in lost) == (client.shape.cwd is None)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("claude-code", {"K": "${TOKEN}", "D": "${TOKEN:-none}", "M": "Bearer ${TOKEN}"}),
        ("cursor", {"K": "${env:TOKEN}", "M": "Bearer ${env:TOKEN}"}),
        ("vscode", {"K": "${env:TOKEN}", "M": "Bearer ${env:TOKEN}"}),
        ("windsurf", {"K": "${env:TOKEN}", "M": "Bearer ${env:TOKEN}"}),
        ("continue", {"K": "${{ secrets.TOKEN }}", "M": "Bearer ${{ secrets.TOKEN }}"}),
        ("gemini", {"K": "${TOKEN}", "M": "Bearer ${TOKEN}"}),
        ("opencode", {"K": "{env:TOKEN}", "M": "Bearer {env:TOKEN}"}),
        ("claude-desktop", {}),
        ("zed", {}),
        ("cline", {}),
        ("codex", {}),
        ("goose", {}),
    ],
)
def test_a_reference_is_written_as_the_client_writes_it_or_left_out_and_named(
    name: str, written: dict[str, str]
) -> None:
    env = {"K": Template("$TOKEN"), "D": Template("${TOKEN:-none}"), "M": Template("Bearer $TOKEN")}
    client = CLIENTS[name]
    told = encode_entry(client, local(env=env))
    assert told.fields.get(client.shape.env, {}) == written
    assert {loss.field for loss in told.losses} == {f"env {key}" for key in env if key not in written}


def test_codex_gets_names_of_variables_and_no_values() -> None:
    client = CLIENTS["codex"]
    told = encode_entry(client, local(env={"TOKEN": Template("$TOKEN"), "LEVEL": Template("info")}))
    assert told.fields["env_vars"] == ["TOKEN"]
    assert told.fields["env"] == {"LEVEL": "info"}
    told = encode_entry(client, remote(Authorization="Bearer $TOKEN", X_Trace="$TRACE", X_Region="eu"))
    assert told.fields["bearer_token_env_var"] == "TOKEN"
    assert told.fields["env_http_headers"] == {"X-Trace": "TRACE"}
    assert told.fields["http_headers"] == {"X-Region": "eu"}
    assert told.losses == ()
    with pytest.raises(Unrepresentable, match="no sse"):
        encode_entry(client, Entry(name="far", transport="sse", url=Template("https://mcp.example.org/")))


def test_goose_gets_the_names_of_variables_that_keep_their_name() -> None:
    told = encode_entry(CLIENTS["goose"], local(env={"TOKEN": Template("$TOKEN"), "K": Template("$OTHER")}))
    assert told.fields["env_keys"] == ["TOKEN"]
    assert [loss.field for loss in told.losses] == ["env K"]


@CLIENT
def test_a_server_that_would_be_another_one_without_its_reference_is_left_out(client: Client) -> None:
    entry = local(args=(Template("--token"), Template("${TOKEN}")))
    if client.shape.references.form:
        assert encode_entry(client, entry).losses == ()
    else:
        with pytest.raises(Unrepresentable, match="args 2"):
            encode_entry(client, entry)


@CLIENT
def test_a_server_that_is_switched_off_is_never_started_by_a_client(client: Client) -> None:
    if client.shape.enabled or client.shape.disabled:
        fields = encode_entry(client, local(enabled=False)).fields
        assert fields.get("enabled") is False or fields.get("disabled") is True
    else:
        with pytest.raises(Unrepresentable, match="enabled"):
            encode_entry(client, local(enabled=False))


def test_a_literal_that_a_client_would_expand_cannot_be_said() -> None:
    for name, text in (
        ("claude-code", "$${HOME}"),
        ("cursor", "$${env:HOME}"),
        ("gemini", "$$HOME"),
        ("opencode", "{env:A}"),
    ):
        with pytest.raises(Unrepresentable, match="args 1"):
            encode_entry(CLIENTS[name], local(args=(Template(text),)))
        assert encode_entry(CLIENTS["claude-desktop"], local(args=(Template(text),))).losses == ()


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30), index=st.integers(0, len(ALL) - 1)
)
def test_whatever_a_client_wrote_is_heard_as_what_it_would_say(text: str, index: int) -> None:
    syntax = ALL[index].shape.references
    template = parse_template(text, syntax).template
    try:
        again = format_template(template, syntax)
    except Unrepresentable:
        return
    assert meaning(parse_template(again, syntax).template) == meaning(template)
    if syntax is LITERAL_ONLY:
        assert again == text


def test_every_spelling_of_a_transport_is_understood() -> None:
    client = CLIENTS["cursor"]
    url = {"url": "https://mcp.example.org/"}
    for word in ("http", "streamable-http", "streamable_http", "streamableHttp", "remote"):
        assert decode_entry(client, "x", {"type": word, **url}).entry.transport == "streamable-http"
    assert decode_entry(client, "x", {"type": "sse", **url}).entry.transport == "sse"
    assert decode_entry(client, "x", url).entry.transport == "streamable-http"
    assert decode_entry(client, "x", {"type": "local", "command": "x"}).entry.transport == "stdio"
    assert decode_entry(client, "x", {"command": "x"}).entry.transport == "stdio"


@pytest.mark.parametrize(
    "value",
    [
        None, [], "x", {}, {"command": 3}, {"command": "x", "args": "y"}, {"command": "x", "env": []},
        {"command": "x", "args": [{}]}, {"type": "pigeon", "command": "x"}, {"url": 7}, {"url": "ftp://x/"},
        {"command": "a\nb"}, {"command": ""}, {"url": "https://x/", "headers": {"a b": "c"}},
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_meant_is_a_problem_and_no_crash(value: object) -> None:
    with pytest.raises(Undecodable):
        decode_entry(CLIENTS["cursor"], "x", value)
    for client in ALL:  # others have other keys, and may understand it
        with suppress(Undecodable):
            decode_entry(client, "x", value)


ODD: list[Any] = [5, 2.5, True, "HOME", [], [5], [[]], {}, {"a": 5}, [{"name": 5}], ["a", None]]


@CLIENT
def test_a_value_of_any_kind_under_any_key_is_a_problem_and_no_crash(client: Client) -> None:
    ways = [{client.shape.command: "python"}, {client.shape.command: ["python", "x"]}, {"url": "https://x/"}]
    for way, key, value in product(ways, sorted({*client.shape.keys, "cmd", "args", ""}), ODD):
        with suppress(Undecodable):
            decode_entry(client, "x", {**way, key: value})


def test_the_names_of_variables_are_a_list_and_not_the_letters_of_a_text() -> None:
    with pytest.raises(Undecodable, match="env_vars is not a list"):
        decode_entry(CLIENTS["codex"], "x", {"command": "python", "env_vars": "HOME"})


def test_a_key_that_a_client_does_not_have_is_not_read_under_an_empty_name() -> None:
    value = {"command": "python", "": True}
    for client in ALL:
        with suppress(Undecodable):  # goose has another key for the command
            found = decode_entry(client, "x", value)
            assert (found.entry.args, found.entry.cwd, found.entry.required) == ((), None, False)


@given(st.text(max_size=300))
@example("-")
@example("a..b")
def test_a_name_we_cannot_have_becomes_the_nearest_that_we_can(name: str) -> None:
    found = usable_name(name)
    if found:
        check_name(found)


def test_secrets_of_two_servers_never_share_a_variable() -> None:
    taken: dict[str, str] = {"SHARED_TOKEN": IN_USE}
    one, _ = move_secrets(local("one", env={"API_KEY": Template("aaaa")}), taken)
    two, _ = move_secrets(local("two", env={"API_KEY": Template("bbbb")}), taken)
    same, _ = move_secrets(local("same", env={"API_KEY": Template("aaaa")}), taken)
    other, moved = move_secrets(local("other", env={"SHARED_TOKEN": Template("cccc")}), taken)
    assert [entry.env["API_KEY"].text for entry in (one, two, same)] == [
        "$API_KEY",
        "$TWO_API_KEY",
        "$API_KEY",
    ]
    assert other.env["SHARED_TOKEN"].text == "$OTHER_SHARED_TOKEN"
    assert [(one.field, one.variable) for one in moved] == [("env SHARED_TOKEN", "OTHER_SHARED_TOKEN")]


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("API_KEY", "x", True),
        ("PGPASSWORD", "hunter2", True),
        ("refreshToken", "abc", True),
        ("DATABASE_URL", "postgres://u:p@db/x", True),
        ("ANYTHING", "ghp_0123456789abcdefghij", True),
        ("HASH", "9f86d081884c7d659a2feaa0", True),
        ("MAX_TOKENS", "4096", False),
        ("TOKEN_FILE", "/run/token", False),
        ("LEVEL", "info", False),
        ("PACKAGE", "server-filesystem-2025.11.25", False),
        ("TOKEN", "", False),
    ],
)
def test_a_secret_is_known_by_its_name_or_by_itself(name: str, value: str, is_secret: bool) -> None:
    entry, moved = move_secrets(local("w", env={name: Template.literal(value)}), {})
    assert (entry.env[name].text == f"${name}") == is_secret
    assert bool(moved) == is_secret


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--token", "abc"], ["--token", "$W_ARG_2"]),
        (["--api-key=abc"], ["--api-key=$W_ARG_1"]),
        (["https://u:p@db.example.org/x?v=2"], ["https://$W_URL_USERINFO@db.example.org/x?v=2"]),
        (["ghp_0123456789abcdefghij"], ["$W_ARG_1"]),
        (["--city", "Oslo, Norway", "", "-y"], ["--city", "Oslo, Norway", "", "-y"]),
    ],
)
def test_an_argument_that_looks_like_a_secret_becomes_a_reference(
    args: list[str], expected: list[str]
) -> None:
    entry, _ = move_secrets(local("w", args=tuple(Template.literal(arg) for arg in args)), {})
    assert [arg.text for arg in entry.args] == expected


@pytest.mark.parametrize(
    ("client", "platform", "environ", "expected"),
    [
        ("claude-desktop", "darwin", {}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {}, "/h/.config/Claude/claude_desktop_config.json"),
        (
            "claude-desktop",
            "win32",
            {"APPDATA": "/a", "USERPROFILE": "/h"},
            "/a/Claude/claude_desktop_config.json",
        ),
        ("claude-code", "linux", {}, "/h/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("cursor", "darwin", {}, "/h/.cursor/mcp.json"),
        ("vscode", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("vscode", "darwin", {}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("windsurf", "linux", {}, "/h/.codeium/windsurf/mcp_config.json"),
        ("codex", "linux", {"CODEX_HOME": "/x"}, "/x/config.toml"),
        ("codex", "linux", {}, "/h/.codex/config.toml"),
        ("continue", "linux", {}, "/h/.continue/config.yaml"),
        ("zed", "darwin", {}, "/h/.config/zed/settings.json"),
        ("gemini", "linux", {}, "/h/.gemini/settings.json"),
        ("goose", "linux", {}, "/h/.config/goose/config.yaml"),
        ("goose", "win32", {"APPDATA": "/a", "USERPROFILE": "/h"}, "/a/Block/goose/config/config.yaml"),
        ("opencode", "linux", {}, "/h/.config/opencode/opencode.json"),
    ],
)
def test_a_clients_file_is_where_the_client_keeps_it(
    client: str, platform: str, environ: dict[str, str], expected: str
) -> None:
    assert locations.user_file(client, {"HOME": "/h", **environ}, platform) == expected


@CLIENT
def test_every_client_has_a_place_on_every_system(client: Client) -> None:
    for platform in ("linux", "darwin", "win32"):
        assert locations.user_file(client.name, {"HOME": "/h", "USERPROFILE": "/h"}, platform).startswith(
            "/h"
        )
