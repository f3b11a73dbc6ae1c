"""The registry's model: templates, entries that cannot be unsound, values that cannot be shown."""

from __future__ import annotations

import copy
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from harness.corpora.secret_corpus import filled
from harness.corpora.secret_formats import MARKED
from perdure.protocol.replay import ProbeRequired
from perdure.registry.entry import LINE_BREAKS, Entry, Replay, Timeouts, check_name
from perdure.registry.entry_json import from_wire, to_wire
from perdure.registry.errors import InvalidEntry, InvalidName, RegistryError, UnsetVariable
from perdure.registry.redaction import REDACTED, mask_args, mask_entry, mask_url, mask_value, scrub
from perdure.registry.resolved_entry import resolve
from perdure.registry.templates import Template

SECRET = "sk-Zx9yW8vU7tS6rQ5pO4nM"


def made(**more: object) -> Entry:
    return Entry(**{"name": "weather", "command": Template("python"), **more})  # type: ignore[arg-type]


# --- templates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$TOK", "t"),
        ("${TOK}", "t"),
        ("${env:TOK}", "t"),
        ("Bearer $TOK", "Bearer t"),
        ("$TOK-x", "t-x"),
        ("a${TOK}b${TOK}c", "atbtc"),
        ("${NONE:-else}", "else"),
        ("${env:NONE:-else}", "else"),
        ("${EMPTY:-else}", "else"),
        ("${TOK:-else}", "t"),
        ("$EMPTY", ""),
        ("$$TOK", "$TOK"),
        ("$$", "$"),
        ("cost: 5$", "cost: 5$"),
        ("^a$|^b$", "^a$|^b$"),
        ("$5", "$5"),
        ("${input:key}", "${input:key}"),
        ("${TOK", "${TOK"),
    ],
)
def test_a_template_resolves_every_form_of_reference(text: str, value: str) -> None:
    assert Template(text).resolve({"TOK": "t", "EMPTY": ""}) == value


def test_an_unset_variable_is_named_and_nothing_else_is() -> None:
    with pytest.raises(UnsetVariable) as caught:
        Template(f"{SECRET} $TOK $NONE").resolve({"TOK": SECRET}, entry="weather")
    assert caught.value.variable == "NONE"
    assert SECRET not in str(caught.value)
    assert not caught.value.retryable


@given(st.text())
def test_a_literal_stands_for_itself_whatever_it_holds(text: str) -> None:
    assert Template.literal(text).resolve({}) == text
    assert Template.literal(text).is_literal


# --- entries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".hidden",
        "a..b",
        "a/b",
        "a\\b",
        "../x",
        "a b",
        "github\n",
        "a\x00",
        "a\u2028",
        "ä",
        "x" * 129,
        "a,b",
    ],
)
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_name(name)
    assert isinstance(caught.value, InvalidName)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a", "io.github.x", "a+b@c-d_e", "UPPER", "9", "x" * 128])
def test_a_good_name_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("broken", list(LINE_BREAKS))
@pytest.mark.parametrize(
    "field", ["title", "description", "command", "args", "cwd", "env", "url", "headers", "extra", "transport"]
)
def test_a_line_break_of_any_kind_is_refused_in_every_field(field: str, broken: str) -> None:
    text = f"a{broken}## evil"
    value: object = text
    if field in ("command", "cwd", "url"):
        value = Template(text)
    elif field == "args":
        value = (Template(text),)
    elif field in ("env", "headers"):
        value = {"K": Template(text)}
    elif field == "extra":
        value = {text: "v"}
    with pytest.raises(InvalidEntry):
        made(**{field: value})


def test_an_entry_cannot_be_made_unsound_by_replacing_a_field() -> None:
    with pytest.raises(InvalidEntry):
        structs.replace(made(), description="a\nb")


FAR = {"transport": "streamable-http", "command": None, "url": Template("https://x.test")}


@pytest.mark.parametrize(
    "more",
    [
        {"command": None},
        {"command": Template(" ")},
        {"url": Template("https://x.test")},
        {"transport": "sse"},
        {"transport": "sse", "command": None},
        {"transport": "sse", "command": None, "url": Template("ftp://x.test")},
        {"transport": "carrier-pigeon"},
        {"env": {"A=B": Template("x")}},
        {"headers": {"A B": Template("x")}},
        {"oauth": {"client_id": Template("x")}},
        {**FAR, "oauth": {"colour": Template("x")}},
        {**FAR, "oauth": {"client_secret": Template("$X")}},
        {**FAR, "oauth": {"grant": Template("password")}},
        {**FAR, "oauth": {"grant": Template("client_credentials"), "client_id": Template("x")}},
        {**FAR, "oauth": {"redirect_port": Template("70000")}},
        {**FAR, "oauth": {"client_metadata_url": Template("http://example.com/client.json")}},
        {**FAR, "oauth": {"client_metadata_url": Template("https://example.com/")}},
        {"timeouts": Timeouts(call=0)},
        {"timeouts": Timeouts(call=float("nan"))},
        {"replay": Replay(tools={"t": ProbeRequired("", {})})},
        {"replay": Replay(tools={"t": ProbeRequired("p", {"a": "b"})})},
        {"args": (Template("a\x00b"),)},
        {"args": (Template("\udcff"),)},
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused_and_named(more: dict[str, object]) -> None:
    with pytest.raises(InvalidEntry) as caught:
        made(**more)
    assert caught.value.entry == "weather"


# --- what is resolved is not shown ----------------------------------------------------------------------


def test_a_resolved_entry_is_not_printed_dumped_pickled_or_copied() -> None:
    found = resolve(made(env={"K": Template("$TOK")}, args=(Template("--x=$TOK"),)), {"TOK": SECRET})
    assert found.env == {"K": SECRET}
    assert found.args == (f"--x={SECRET}",)
    for text in (repr(found), str(found), f"{found}"):
        assert SECRET not in text
    for store in (pickle.dumps, copy.copy, copy.deepcopy, msgspec.json.encode, msgspec.to_builtins):
        with pytest.raises(TypeError) as caught:
            store(found)
        assert SECRET not in str(caught.value)


def test_everything_secret_of_an_entry_is_hidden_and_references_are_shown() -> None:
    entry = made(
        args=tuple(
            map(
                Template,
                (
                    f"--token={SECRET}",
                    "--api-key",
                    SECRET,
                    f"https://user:{SECRET}@host.test/p?key={SECRET}",
                    f"TOKEN={SECRET}",
                    "-e",
                    f"ANY={SECRET[:7]}",
                    f"Authorization: Bearer {SECRET}",
                    "-H",
                    f"X-Any: {SECRET[:7]}",
                    SECRET,
                    "$TOK",
                    "--token=$TOK",
                    "--city",
                    "Oslo, Norway",
                ),
            )
        ),
        env={"K": Template(SECRET), "L": Template("$TOK"), "M": Template(f"${{TOK:-{SECRET}}}")},
        extra={"unknown": SECRET},
    )
    shown = mask_entry(entry)
    text = msgspec.json.encode(shown).decode()
    assert SECRET not in text
    assert SECRET[:7] not in text
    assert shown["env"] == {"K": REDACTED, "L": "$TOK", "M": f"${{TOK:-{REDACTED}}}"}
    assert shown["args"][-4:] == ["$TOK", "--token=$TOK", "--city", "Oslo, Norway"]


def test_a_url_keeps_its_host_and_loses_its_credentials() -> None:
    assert (
        mask_url(f"https://user:pw@host.test:8/p?k={SECRET}&r=$TOK#x")
        == f"https://{REDACTED}@host.test:8/p?k={REDACTED}&r=$TOK#{REDACTED}"
    )
    assert mask_url("https://host.test/mcp") == "https://host.test/mcp"
    assert SECRET not in mask_url(f"https://host.test/s/{SECRET}/mcp")


def test_how_a_token_is_sent_is_shown_and_the_token_is_not() -> None:
    assert mask_value(Template("Bearer $TOK")) == "Bearer $TOK"
    assert mask_value(Template(f"Bearer {SECRET}")) == f"Bearer {REDACTED}"
    assert mask_args(["--password", "$P"]) == ["--password", "$P"]


def test_a_key_of_each_format_that_the_risk_check_knows_is_hidden() -> None:
    chance = random.Random(1)
    rows = (line.split(" ", 1) for line in MARKED.strip().splitlines())
    keys = {name: filled(chance, form) for name, form in rows}
    assert len(keys) > 200
    assert [name for name, key in keys.items() if key in " ".join(mask_args(["server.py", key]))] == []
    assert [name for name, key in keys.items() if key in scrub(f"refused: {key}\n")] == []


def test_words_paths_and_versions_are_shown() -> None:
    text = (
        "2026-01-02T03:04:05.678 ModuleNotFoundError at /usr/lib/python3.11/site-packages/acme_server.py:33"
    )
    assert scrub(text) == text
    words = [
        "@acme/server-filesystem@2025.11.25",
        "--log-level=DEBUG",
        "client-side-rendering-v2",
        "API_VERSION_2",
    ]
    assert mask_args(words) == words


def test_foreign_text_loses_the_values_it_was_given_and_what_looks_like_a_key() -> None:
    text = f"error: password hunter22 refused at https://u:p@h.test/x, key {SECRET}, api_key=abcdefgh"
    found = scrub(text, ["hunter22", "1"])
    assert "hunter22" not in found
    assert SECRET not in found
    assert "u:p" not in found
    assert "abcdefgh" not in found
    assert "h.test" in found


def test_every_error_says_whether_to_try_again_and_how_to_exit() -> None:
    pending = [RegistryError]
    while pending:
        one = pending.pop()
        pending += one.__subclasses__()
        assert one.exit_code in (1, 2, 3, 4)
        assert one.code


def test_a_host_without_a_registry_loads_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "import perdure.host.compose as compose\n"
        "from perdure.host.settings import load\n"
        "settings = load({'workspace': ['.']}, os.environ)\n"
        "mounts = compose.RegistryMounts(settings, os.environ, frozenset())\n"
        "assert mounts.specs() == {} and mounts.news() == []\n"
        "print(*sorted(m for m in sys.modules if m.startswith('perdure.registry.')))"
    )
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path)}
    env.pop("PERDURE_REGISTRY", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["perdure.registry.location"]


def test_a_probe_is_read_as_catalogs_of_version_0_1_0_send_it() -> None:
    older = {"tools": {"charge": {"probe": "find", "arguments": {"key": "/key"}}}}
    entry = from_wire({"name": "a", "command": "x", "replay": older})
    assert entry.replay.tools == {"charge": ProbeRequired("find", {"key": "/key"})}
    assert from_wire(to_wire(entry)) == entry
    with pytest.raises(InvalidEntry):
        from_wire(
            {"name": "a", "command": "x", "replay": {"tools": {"b": {"probe": "f", "arguments": {"k": 1}}}}}
        )


@pytest.mark.parametrize("key", ["sk-abcdef12", "ghp_abcdefghijklmnopqrst", "xoxb-abcdefgh", "AKIAABCDEFGH"])
def test_what_begins_as_a_key_does_is_hidden_though_it_is_short_or_not_random(key: str) -> None:
    assert key not in scrub(f"refused: {key}")
    assert key not in " ".join(mask_args(["server.py", key]))
    assert key not in mask_url(f"https://host.test/s/{key}/mcp")
