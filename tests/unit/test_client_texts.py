"""Config files of other clients as texts: one entry changes, every other byte stays."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.registry.clients.config_text import ConfigText, Uneditable
from perdure.registry.clients.json_syntax import JsonSyntax
from perdure.registry.clients.toml_syntax import TomlSyntax
from perdure.registry.clients.yaml_syntax import YamlSyntax

CURSOR = ConfigText(JsonSyntax(), "mcpServers")
CODEX = ConfigText(TomlSyntax(), "mcp_servers")
CONTINUE = ConfigText(YamlSyntax(), "mcpServers", is_list=True)
GOOSE = ConfigText(YamlSyntax(), "extensions")

TOML_FILES = {
    "empty": "",
    "comment only": "# mine",
    "no newline at the end": 'model = "o3"',
    "sections": (
        '# top\nmodel = "o3"   # kept\n\n[mcp_servers.old]\ncommand = "npx" # why\nargs = [\n  "-y", # yes\n'
        '  "a,b",\n]\n\n[mcp_servers.old.env]\nKEY = \'lit\'\n# about the next\n\n[tui]\ntheme = """\nx = [1\n"""\n'
    ),
    "dotted": 'mcp_servers.old.command = "npx"\nmcp_servers.old.env.KEY = "v"\nafter = 1\n\n[tui]\na = 2\n',
    "inline": 'mcp_servers = { old = { command = "npx", args = [] } }\nafter = 1\n',
    "a table of inline tables": '[mcp_servers]\n# first\nold = { command = "npx" }\n[tui]\na = 2',
    "quoted names": '[ mcp_servers . "old" ]\n"command" = "npx"\n[[other]]\nx = 1979-05-27 07:32:00\n[[other]]\n',
}
YAML_LISTS = {
    "empty": "",
    "comment only": "# mine",
    "no newline at the end": "name: x",
    "a list": (
        "# top\nname: My Config # kept\nmcpServers:\n  # first\n  - name: old # why\n    command: npx\n    args:\n"
        "      - -y\n      # inner\n      - 'a,b'\n    env:\n      KEY: |\n        one\n        two\n\n"
        "# about models\nmodels:\n- name: m\n"
    ),
    "not indented": "mcpServers:\n- name: old\n  command: npx\n- command: x\n  name: other\nmodels: []\n",
    "empty list": "mcpServers: []  # none yet\nmodels: []\n",
    "nothing": "mcpServers:\nmodels: []\n",
    "null": "mcpServers: null\n",
    "document marks": "---\nname: x\nmcpServers:\n  - name: old\n    command: npx\n...\n",
    "dash on its own line": "mcpServers:\n  -\n    name: old\n    command: npx\n",
}
YAML_MAPPINGS = {
    "empty": "",
    "a mapping": (
        "GOOSE_MODEL: m # kept\nextensions:\n  # first\n  developer:\n    bundled: true\n    enabled: true\n"
        "  old:\n    cmd: npx\n    args:\n    - -y\n    envs: {}\n    type: stdio\n# end\nlast: 'x'\n"
    ),
    "empty mapping": "extensions: {}\nx: 1\n",
}
JSON_FILES = {
    "empty": "",
    "empty object": "{}",
    "null settings": '{"a": null}\n',
    "one line": '{"mcpServers": {"old": {"command": "npx", "env": {"A": "b"}}, "b": {}}, "z": [1, 2]}',
    "commented": (
        '// # top\n{\n\t"theme": "x", // # kept\n\t"mcpServers": {\n\t\t// # first\n\t\t"old": { /* why */\n'
        '\t\t\t"command": "npx", // inner\n\t\t\t"args": ["-y", "a,b",],\n\t\t},\n\t\t"other": {} // # end\n\t},\n}\n'
    ),
    "null servers": '{"mcpServers": null, "z": 1}',
    "empty servers": '{\n    "mcpServers": {\n    },\n    "z": 1\n}\n',
}
FILES = [
    *((CURSOR, f"json {name}", text) for name, text in JSON_FILES.items()),
    *((CODEX, f"toml {name}", text) for name, text in TOML_FILES.items()),
    *((CONTINUE, f"yaml list {name}", text) for name, text in YAML_LISTS.items()),
    *((GOOSE, f"yaml mapping {name}", text) for name, text in YAML_MAPPINGS.items()),
]
CASES = [
    pytest.param(form, text.replace("\n", newline), id=f"{name} {kind}")
    for form, name, text in FILES
    for newline, kind in (("\n", "lf"), ("\r\n", "crlf"))
]
WITH_OLD = [case for case in CASES if "old" in case.values[0].servers(case.values[1])]

EMPTY_VALUE = re.compile(r"(?<=Servers:) (\[\]|null)|(?<=Servers\":) null|(?<=extensions:) \{\}")

TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    st.text(string.printable, max_size=12),
    st.sampled_from(
        ["", " ", "yes", "null", "~", "1", "1e3", ".5", "-", "---", "a: b", "x #y", "'", '"', "\\", "%"]
    ),
)
FIELDS = st.fixed_dictionaries(
    {"command": TEXT},
    optional={
        "args": st.lists(TEXT, max_size=4),
        "env": st.dictionaries(TEXT, TEXT, max_size=3),
        "enabled": st.booleans(),
        "timeout": st.integers(0, 10**6),
    },
)
NAMES = st.one_of(TEXT.filter(lambda name: name not in ("old", "b", "other", "developer")))


def is_kept(before: str, after: str) -> bool:
    """Whether every character of the text before stands in the text after, in order; an empty value may go."""
    rest = iter(after)
    return all(one in rest for one in EMPTY_VALUE.sub("", before, count=1))


def others(form: Any, text: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in form.servers(text).items() if key != name}


@pytest.mark.parametrize(("form", "text"), CASES)
@settings(max_examples=10, deadline=None)
@given(name=NAMES, fields=FIELDS)
def test_an_entry_that_is_added_says_what_was_meant_and_nothing_else_changes(
    form: Any, text: str, name: str, fields: dict[str, Any]
) -> None:
    added = form.with_entries(text, {name: fields})
    assert form.servers(added)[name] == fields
    assert others(form, added, name) == form.servers(text)
    assert is_kept(text, added), "something of the file was rewritten"
    assert others(form, form.without_entries(added, [name]), name) == form.servers(text)


@pytest.mark.parametrize(("form", "text"), WITH_OLD)
@settings(max_examples=10, deadline=None)
@given(
    value=st.one_of(TEXT, st.lists(TEXT, max_size=3), st.dictionaries(TEXT, TEXT, max_size=2), st.booleans())
)
@pytest.mark.parametrize("field", ["command", "cmd", "env", "new field"])
def test_a_field_that_is_set_leaves_the_others_and_every_other_line(
    form: Any, text: str, field: str, value: Any
) -> None:
    before = form.servers(text)["old"]
    changed = form.with_field(text, "old", field, value)
    assert form.servers(changed)["old"] == {**before, field: value}
    assert others(form, changed, "old") == others(form, text, "old")
    again = form.without_field(changed, "old", field)
    assert form.servers(again)["old"] == {key: one for key, one in before.items() if key != field}


@pytest.mark.parametrize(("form", "text"), WITH_OLD)
def test_an_entry_that_is_removed_takes_no_comment_of_others_along(form: Any, text: str) -> None:
    removed = form.without_entries(text, ["old"])
    assert "old" not in form.servers(removed)
    assert others(form, removed, "old") == others(form, text, "old")
    for comment in ("# top", "# kept", "# first", "# about the next", "# about models", "# end"):
        assert (comment in text) == (comment in removed)


@pytest.mark.parametrize(("form", "text"), CASES)
def test_many_entries_are_added_and_removed_in_one_change(form: Any, text: str) -> None:
    entries = {f"new{number}": {"command": f"c{number}", "args": ["a"]} for number in range(5)}
    added = form.with_entries(text, entries)
    assert form.servers(added) == {**form.servers(text), **entries}
    assert is_kept(text, added)
    some = ["new0", "new1", "new4"]
    left = form.without_entries(added, some)
    assert form.servers(left) == {**form.servers(text), "new2": entries["new2"], "new3": entries["new3"]}
    assert is_kept(text, left)
    assert form.servers(form.without_entries(left, ["new2", "new3"])) == form.servers(text)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (CONTINUE, 'mcpServers: [{name: old, command: npx}, {"name": "b", "args": []}]\nx: 1\n'),
        (CONTINUE, "mcpServers:\n  - {name: old, command: npx}\n"),
        (GOOSE, "extensions: {old: {cmd: npx}, b: {}}\n"),
        (GOOSE, "extensions:\n  old: {cmd: npx}\n"),
        (GOOSE, "shared: &all\n  old:\n    cmd: npx\nextensions: *all\n"),
    ],
)
def test_yaml_in_flow_style_or_by_an_alias_is_read_and_refused(form: Any, text: str) -> None:
    assert "old" in form.servers(text)
    for edit in (
        lambda: form.with_field(text, "old", "command", "uvx"),
        lambda: form.without_field(text, "old", "command" if form is CONTINUE else "cmd"),
    ):
        with pytest.raises(Uneditable):
            edit()
    if text.count("\n  ") == 0 or "*" in text:
        for edit in (
            lambda: form.with_entries(text, {"new": {}}),
            lambda: form.without_entries(text, ["old"]),
        ):
            with pytest.raises(Uneditable):
                edit()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["json", "toml", "yaml list", "yaml mapping"])
@settings(max_examples=1000, deadline=None)
@given(choice=st.randoms(use_true_random=False), name=NAMES, fields=FIELDS)
def test_a_thousand_entries_of_each_format_are_added_and_removed_and_nothing_else_changes(
    kind: str, choice: Any, name: str, fields: dict[str, Any]
) -> None:
    form, text = choice.choice([case.values for case in CASES if str(case.id).startswith(kind)])
    added = form.with_entries(text, {name: fields})
    assert form.servers(added)[name] == fields
    assert is_kept(text, added), "something of the file was rewritten"
    removed = form.without_entries(added, [name])
    assert form.servers(removed) == form.servers(text)
    assert is_kept(text, removed), "something of the file was removed"
