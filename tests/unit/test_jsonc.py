"""Editing JSON by span: one value changes, every other byte stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.registry.file.jsonc import JsonProblem, find, parse, put, remove

SETTINGS = """\
// my editor
{
\t"theme": "dark", /* why
\tnot */
\t"mcp": {
\t\t// servers
\t\t"servers": {
\t\t\t"a": { "command": "npx", "args": ["-y", "x"], }, // the first
\t\t},
\t},
\t"last": [1, 2.50, 1e3, "\\u00e9"], // end
}
"""


def test_comments_and_trailing_commas_are_read() -> None:
    assert parse(SETTINGS).value == {
        "theme": "dark",
        "mcp": {"servers": {"a": {"command": "npx", "args": ["-y", "x"]}}},
        "last": [1, 2.5, 1000.0, "é"],
    }


def test_an_added_member_takes_the_style_of_its_neighbours() -> None:
    found = put(SETTINGS, ["mcp", "servers", "b"], {"command": "uvx"})
    assert found == SETTINGS.replace(
        "// the first\n", '// the first\n\t\t\t"b": {\n\t\t\t\t"command": "uvx"\n\t\t\t},\n'
    )


def test_what_was_added_and_removed_again_left_nothing() -> None:
    assert remove(put(SETTINGS, ["mcp", "servers", "b"], {"c": 1}), ["mcp", "servers", "b"]) == SETTINGS


@pytest.mark.parametrize(
    ("text", "path", "value", "wanted"),
    [
        ("{}", ["a"], 1, '{\n  "a": 1\n}'),
        ('{"a": 1}', ["b"], 2, '{"a": 1, "b": 2}'),
        ('{"a": 1}', ["a"], None, '{"a": null}'),
        (
            '{\r\n    "a": 1\r\n}\r\n',
            ["b"],
            {"c": 2},
            '{\r\n    "a": 1,\r\n    "b": {\r\n        "c": 2\r\n    }\r\n}\r\n',
        ),
        ("\ufeff{}\n", ["a"], 1, '\ufeff{\n  "a": 1\n}\n'),
        ('{\n  "a": 1 // one\n}', ["b"], 2, '{\n  "a": 1, // one\n  "b": 2\n}'),
        ("{ // none yet\n}", ["a"], 1, '{ // none yet\n  "a": 1\n}'),
        ("{}", ["a", "b"], 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"l": [1]}', ["l", 1], 2, '{"l": [1, 2]}'),
        ('{"a": 1, "a": 2}', ["a"], 3, '{"a": 1, "a": 3}'),
    ],
)
def test_a_value_is_put_in_its_place(text: str, path: list[str | int], value: object, wanted: str) -> None:
    assert put(text, path, value) == wanted


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        ('{"a": 1, "b": 2}', ["a"], '{"b": 2}'),
        ('{"a": 1, "b": 2}', ["b"], '{"a": 1}'),
        ('{\n  "a": 1, // one\n  "b": 2\n}', ["b"], '{\n  "a": 1 // one\n}'),
        ('{\n  "a": 1,\n  "b": 2, // two\n  "c": 3\n}', ["b"], '{\n  "a": 1,\n  // two\n  "c": 3\n}'),
        ('{\n  "a": 1\n}', ["a"], "{\n}"),
        ('{"a": [1, 2, 3]}', ["a", 1], '{"a": [1, 3]}'),
        ('{"a": 1 /* c */, "b": 2}', ["a"], '{/* c */ "b": 2}'),
        ('{"a": 1}', ["x"], '{"a": 1}'),
    ],
)
def test_a_value_is_removed_with_its_comma_and_line(text: str, path: list[str | int], wanted: str) -> None:
    assert remove(text, path) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"}',
        '{"a": }',
        "[1 2]",
        "{} x",
        '"\n"',
        '"\x01"',
        "[" * 600,
        '{"a":' * 3000,
        "{'a': 1}",
        "nul",
        "NaN",
        "01",
        "9" * 5000,
        "{,}",
        "[,]",
        "[1,,]",
        '{"a": 1,,}',
        "{} /* c",
    ],
    ids=lambda text: text[:10],
)
def test_what_is_not_json_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(JsonProblem) as caught:
        parse(text)
    assert caught.value.line >= 1


@pytest.mark.parametrize(
    "text",
    [
        "7",
        "[]",
        "{}",
        "\r\n [ ] ",
        '{"a": 1, "\u00fc": {}, "": [1, -0, -0.5e3, 1E400, true, false, null]}',
        '"\\u00e9\\ud83d\\ude00\\ud800 \\n\\/"',
        '{"a": 1, "a": 2}',
        "[" * 150 + "]" * 150,
    ],
    ids=lambda text: text[:10],
)
def test_plain_json_is_read_as_the_json_package_reads_it(text: str) -> None:
    assert parse(text).value == json.loads(text)
    assert parse("\ufeff" + text + "// end").value == json.loads(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
INDENTS = st.sampled_from([None, 2, 4, "\t"])


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.text(max_size=5), VALUES, INDENTS)
def test_put_then_read_gives_the_value_and_every_other_as_before(
    document: dict[str, object], key: str, value: object, indent: int | str | None
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    changed = put(text, [key], value)
    assert json.loads(changed) == {**document, key: value}
    if key not in document:
        gone = remove(changed, [key])
        assert json.loads(gone) == document
        if document:
            assert gone == text


@given(st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=5), st.data(), INDENTS)
def test_remove_leaves_json_and_the_rest(
    document: dict[str, object], data: st.DataObject, indent: int | str | None
) -> None:
    key = data.draw(st.sampled_from(sorted(document)))
    text = json.dumps(document, indent=indent)
    changed = remove(text, [key])
    assert json.loads(changed) == {name: value for name, value in document.items() if name != key}


def test_a_missing_place_is_none() -> None:
    assert find(parse("[1]"), [5]) is None
    assert find(parse("{}"), ["a", "b"]) is None
    with pytest.raises(JsonProblem):
        put('{"a": 1}', ["a", "b"], 2)
