"""Each format's particulars: what must pass, what must not, and what is said about it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.validate import Problem, check
from perdure.validate.detect import detect


def said(text: str, form: str) -> list[tuple[int, str, str]]:
    return [(p.line, p.severity, p.message) for p in check(text, format_hint=form).errors]


def errors(text: str, form: str) -> list[Problem]:
    return [p for p in check(text, format_hint=form).errors if p.severity == "error"]


@pytest.mark.parametrize(
    ("hint", "path", "text", "form"),
    [
        ("json", "a.py", "---", "json"),
        ("nonsense", "a.py", "", "python"),
        (None, "src/a.tsx", "", "tsx"),
        (None, "tsconfig.base.json", "", "jsonc"),
        (None, ".vscode/settings.json", "", "jsonc"),
        (None, "package.json", "", "json"),
        (None, "Cargo.lock", "", "toml"),
        (None, "script", "#!/usr/bin/env python3\n", "python"),
        (None, "script", "#!/bin/sh\n", "shell"),
        (None, None, "<?xml version='1.0'?><a/>", "xml"),
        (None, None, "<!doctype html>", "html"),
        (None, None, "[table]\nkey = 1\n", "toml"),
        (None, None, "[1, 2]", "json"),
        (None, None, "---\na: 1\n", "yaml"),
        (None, "notes.txt", "a plain text", "unknown"),
        (None, "Makefile", "all:\n", "unknown"),
    ],
)
def test_a_format_is_known_by_hint_then_name_then_content(
    hint: str | None, path: str | None, text: str, form: str
) -> None:
    assert detect(text, format_hint=hint, target_path=path) == form


def test_an_unknown_format_is_not_called_valid() -> None:
    report = check("anything", target_path="a.xyz")
    assert (report.valid, report.format, report.level, report.errors) == (None, "unknown", "none", [])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", '{"a": [1, -2.5e3, "\\u00e9"], "b": {}}'),
        ("json", "[" * 5000 + "]" * 5000),
        ("jsonc", '{// c\n "a": [1, 2,], /* d */}'),
        ("json5", "{a: 'b', c: +.5, d: Infinity,}"),
        ("jsonl", '{"a": 1}\n[2]\n'),
        ("yaml", "--- !a\nx: !Ref y\nz: !Sub [a, b]\n---\nw: &k 1\nv: *k\n<<: {q: 1}\n"),
        ("toml", "a.b = 1\n[c]\nd = 2024-01-01\n"),
        ("xml", '<!DOCTYPE a [<!ENTITY e "x">]><a>&e;<b/></a>'),
        (
            "xml",
            '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0//EN" "http://example.invalid/x.dtd"><html>&nbsp;</html>',
        ),
        (
            "latex",
            r"\{ a \} 5\% \verb|{$| % { $" + "\n\\begin{lstlisting}\n{ $ \\end{x}\n\\end{lstlisting}\n",
        ),
        ("latex", r"\newenvironment{n}{\begin{quote}}{\end{quote}} \url{http://a/b%20c} $\text{if $x$}$"),
        ("latex", r"\newcommand{\be}{\begin{equation}} ``$a$ is in $A$''"),
        ("html", "<ul><li>one<br><li>two</ul><p>a</p><script>if (a<b) '</p>'</script>"),
        (
            "css",
            "a{filter: progid:DXImageTransform.Microsoft.gradient(startColorstr='#1');color:red !important}",
        ),
        ("shell", "case $x in (a) echo '}';; esac\ncat <<E\nif {\nE\n"),
        (
            "sql",
            "CREATE FUNCTION f() RETURNS int AS $$ BEGIN RETURN '('; END $$ LANGUAGE plpgsql; SELECT count(*);",
        ),
        ("latex", "\\begin{sourcecode}\n\\begin{document}\n{\n\\end{sourcecode}\n"),
        ("sql", "CREATE TABLE a (\n    id bigserial PRIMARY KEY,\n    values text[] NOT NULL\n);\n"),
        ("tsx", "const a = <p title='x'>it's {b}</p>;\n"),
    ],
)
def test_what_is_right_is_left_alone(form: str, text: str) -> None:
    assert check(text, format_hint=form).valid is True, said(text, form)
    assert said(text, form) == []


def test_json_names_the_place_of_a_repeated_key_and_of_what_json_does_not_have() -> None:
    assert said('{"a": 1,\n "a": 2}', "json") == [(2, "warning", "the key 'a' was given already at line 1")]
    assert check('{"a": 1, "a": 2}', format_hint="json").valid is True
    assert errors('{"a": NaN}', "json")[0].col == 7
    assert "comment" in errors('{"a": 1 // x\n}', "json")[0].message
    assert errors("", "json") == [Problem(1, 1, "expected a value, found the end of the file")]


def test_a_missing_bracket_is_an_error_that_names_the_open_one() -> None:
    assert said('{\n  "a": {\n    "b": 1,\n    "c": 2\n\n  "d": 3\n}\n', "json") == [
        (6, "error", "expected ',' or '}' in the '{' opened at line 2, found a string")
    ]
    assert said("<a>\n<b>\n</a>\n", "xml") == [(2, "error", "mismatched tag: 'b' is never closed")]
    assert said("<a>\n<b>\n</c>\n</a>\n", "xml") == [(3, "error", "mismatched tag: 'b' is open since line 2")]
    assert said("a = 1\nb = 'c\nd = 2\n", "toml") == [(2, "error", "the string opened here is never closed")]


@pytest.mark.parametrize("text", ["[1\u0661]", "\u0661", "[1,\u00a02]", "[1,\x0c2]", '{"a":\u20031}'])
def test_json_has_only_ascii_digits_and_spaces(text: str) -> None:
    assert check(text, format_hint="json").valid is False
    assert check(text, format_hint="jsonc").valid is False


@given(st.text(alphabet='{}[]:,"\\/ \t\n\x0c\u00a0truefalsn0123456789.eE+-\u0661u', max_size=12))
@example('{"a": [1, -2.5e3, "\\u00e9"], "b": {}}')
@example('["\\u\u0661\u0661\u0661\u0661"]')
def test_json_is_what_the_standard_decoder_reads(text: str) -> None:
    try:
        json.loads(text.replace("\r", "\n"), parse_constant=pytest.fail)
        is_json = True
    except ValueError:
        is_json = False
    assert check(text, format_hint="json").valid is is_json


def test_yaml_warns_of_repeated_keys_in_one_mapping_only() -> None:
    assert said("a: 1\nb:\n  a: 1\na: 2\n", "yaml") == [
        (4, "warning", "the key 'a' was given already at line 1")
    ]


@pytest.mark.parametrize("form", ["json", "jsonc", "json5", "jsonl"])
def test_only_the_digits_of_ascii_make_a_number(form: str) -> None:
    assert check("[1\u0661]", format_hint=form).valid is False
    assert check("[\u0661]", format_hint=form).valid is False
    assert check("[11]", format_hint=form).valid is True


def test_yaml_does_not_repeat_a_tag_handle_of_the_content() -> None:
    assert said("a: !s3cr3t!x 1\n", "yaml") == [(1, "error", "found undefined tag handle")]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.3", "1.10"])
def test_yaml_of_any_minor_version_is_read(version: str) -> None:
    assert check(f"%YAML {version}\n---\na: {{b: 1}}\n", format_hint="yaml").valid is True
    assert check("%YAML 2.0\n---\na: 1\n", format_hint="yaml").valid is False


def test_yaml_refuses_an_alias_without_an_anchor() -> None:
    assert errors("a: *b\n", "yaml")[0].line == 1


def test_entities_that_multiply_are_refused() -> None:
    names = "abcdefghij"
    lines = [f'<!ENTITY a "{"x" * 100}">']
    lines += [f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in pairwise(names)]
    bomb = "<!DOCTYPE a [\n" + "\n".join(lines) + ']>\n<a b="&j;">&j;</a>'
    found = errors(bomb, "xml")
    assert len(found) == 1
    assert "amplification" in found[0].message


@pytest.mark.parametrize("form", [pytest.param("yaml", marks=pytest.mark.thorough), "toml", "python"])
def test_nesting_too_deep_to_check_is_said_and_not_called_valid(form: str) -> None:
    text = {"yaml": "[" * 100_000, "toml": "a = " + "[" * 5000, "python": "-" * 200_000 + "1"}[form]
    report = check(text, format_hint=form)
    assert report.valid is None
    assert "deep" in report.summary


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("templates/a.yaml", "a: 1\n{{- if .Values.x }}\n b: 2\n{{- end }}\n"),
        ("a.json", '{"name": {{ cookiecutter.name }}}\n'),
        ("a.xml", "<a>\n{% if b %}\n<c>\n{% endif %}\n</a>\n"),
        ("feed.xml", "---\nlayout: null\n---\n<?xml version='1.0'?>\n<a/>\n"),
    ],
)
def test_a_template_is_neither_right_nor_wrong(path: str, text: str) -> None:
    report = check(text, target_path=path)
    assert (report.valid, report.errors) == (None, [])


def test_a_doubled_brace_is_no_template() -> None:
    assert check('{"a": {{"b": 1}}}', format_hint="json").valid is False


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("---\ntitle: x\n\n# A\n", 1, "the front matter opened here is never closed"),
        ("# A\n\n```sh\nls\n", 3, "the code fence opened here is never closed"),
        ("# A\n\nb\n<<<<<<< HEAD\nc\n", 4, "a conflict marker"),
    ],
)
def test_markdown_gets_hints_and_no_verdict(text: str, line: int, message: str) -> None:
    report = check(text, format_hint="markdown")
    assert (report.valid, report.level, said(text, "markdown")) == (
        None,
        "none",
        [(line, "warning", message)],
    )
    assert check("# A\n\n```diff\n<<<<<<< HEAD\n```\n", format_hint="markdown").errors == []


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("javascript", "f(;\n"),
        ("css", "a { b: c;\n"),
        ("html", "<div>\n"),
        ("sql", "SELECT (1;\n"),
        ("shell", "if a; then\n  b\n"),
        ("php", "<?php\nf(;\n"),
        ("ruby", "def f(\n  1\n"),
    ],
)
def test_what_a_grammar_cannot_read_is_doubted_and_not_called_invalid(form: str, text: str) -> None:
    report = check(text, format_hint=form)
    assert (report.valid, report.level) == (None, "grammar")
    assert {problem.severity for problem in report.errors} == {"warning"}
    assert report.summary.startswith("perhaps not valid ")


def test_line_ends_of_any_kind_count_alike() -> None:
    for end in ("\n", "\r\n", "\r"):
        assert errors(end.join(('{"a": 1,', '"b" 2,', "}")), "json")[0].line == 2


def test_messages_carry_no_content() -> None:
    secret = "hunter2hunter2hunter2hunter2"
    for form, text in (
        ("json", f'{{"a": "{secret}" "b"}}'),
        ("json", f'{{"{secret}": 1, "{secret}": 2}}'),
        ("yaml", f"a: 1\nb: [{secret}\n{secret}: 1\n{secret}: 2\n"),
        ("xml", f"<a>{secret}</b>"),
        ("javascript", f'const a = "{secret}" "{secret}";'),
        ("sql", f"SELECT ('{secret}' 1 FROM;"),
        ("toml", f"[{secret}]\n[{secret}]\n"),
        ("html", f"<{secret}>"),
    ):
        report = check(text, format_hint=form)
        assert report.errors, form
        assert secret not in repr(report), form


def test_tags_with_many_quotes_are_read() -> None:
    row = "<a " + "b='<c>' d=\"e\" " * 100 + "href=/x/>y</a>\n"
    assert check(f"<p>{row}</p><img src='a'/>", format_hint="html").valid is True
    assert said("<p><a b='c\n<i>d</i></p>\n", "html")


@pytest.mark.parametrize("form", ["javascript", "java", "go", "rust"])
def test_the_first_error_of_a_long_text_is_where_it_is_in_a_short_one(form: str) -> None:
    lines = {
        "javascript": "function f(b, a) { return [b, 1]; }\n",
        "java": "class A { int f(int a) { return a; } }\n",
        "go": "func f(a int) int { return a }\n",
        "rust": "fn f(a: u8) -> u8 { a }\n",
    }[form]
    lead = "package a\n" if form == "go" else ""
    wrong = lines.replace(" a", " a a b", 1)
    for before in (3, 220, 1_500):
        line, *_ = said(lead + lines * before + wrong + lines * 1_500, form)[0]
        assert line == before + 1 + len(lead.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "\\begin{document}\na\n\\end{document}\n",
            ["'\\documentclass' is missing before '\\begin{document}'"],
        ),
        ("\\input{preamble}\n\\begin{document}\na\n\\end{document}\n", []),
        ("%&latex\n\\begin{document}\na\n\\end{document}\n", []),
        ("\\beign{center}\na\n", ["'\\beign' is probably a misspelt '\\begin'"]),
        ("\\newcommand{\\ned}[1]{#1}\n\\ned{a}\n", []),
        ("A $x + y\n\nB $z$.\n", ["the math opened by '$' is not closed in its paragraph"]),
        ("Human \\being\n% \\being{x}\n\\verb|\\being{x}|\n", []),
    ],
)
def test_what_is_missing_or_misspelt_in_latex_is_a_warning(text: str, said: list[str]) -> None:
    report = check(text, format_hint="latex")
    assert report.valid is True
    assert [(one.message, one.severity) for one in report.errors] == [(words, "warning") for words in said]
