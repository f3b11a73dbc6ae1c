"""For which problems a write is refused: the file parsed before and no longer does, or it is new and exact."""

from __future__ import annotations

import pytest

from perdure.validate import check, regressions

BROKEN_BEFORE = "def f(:\n    pass\n"


def refused_lines(before: str | None, after: str, form: str) -> list[int]:
    report = None if before is None else check(before, format_hint=form)
    return [problem.line for problem in regressions(report, check(after, format_hint=form))]


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        ("python", "a = 1\n", "a = \n"),
        ("c", "int f(int a) {\n  return a;\n}\n", "int f(int a) { return a + ; }\n"),
        ("javascript", "let a = 1;\n", "let a = ;\n"),
        ("html", "<p>a</p>\n", "<div>a\n"),
        ("sql", "SELECT 1;\n", "SELECT (1;\n"),
    ],
)
def test_breaking_a_file_that_parsed_is_refused(form: str, before: str, after: str) -> None:
    assert set(refused_lines(before, after, form)) == {1}


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        ("python", BROKEN_BEFORE, "import os\n\n" + BROKEN_BEFORE),
        ("python", BROKEN_BEFORE, BROKEN_BEFORE + "x = (\n"),
        ("c", "API int f(int a) NOTHROW {\n}\n", "API int f(int a) NOTHROW {\n  return a + ;\n}\n"),
    ],
)
def test_a_file_that_did_not_parse_may_stay_broken(form: str, before: str, after: str) -> None:
    assert refused_lines(before, after, form) == []


def test_a_new_file_is_refused_by_an_exact_parser_and_not_by_a_grammar() -> None:
    assert refused_lines(None, "a = \n", "python") == [1]
    assert refused_lines(None, "int f(int a) {\n  return a + ;\n}\n", "c") == []
    assert refused_lines(None, "<div>a\n", "html") == []


def test_a_file_of_another_format_before_counts_as_new() -> None:
    before = check("{}", format_hint="json")
    assert regressions(before, check("a = \n", format_hint="python")) != []
    assert regressions(before, check("let a = ;\n", format_hint="javascript")) == []


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        ("json", '{"a": 1}', '{"a": 1, "a": 2}'),  # a key given twice is a warning
        ("markdown", "a\n", "```\na\n"),
        ("python", "a = 1\n", "print 'a'\n"),  # stands for syntax that is newer than the running version
        ("python", "a = 1\n", "-" * 200_000 + "1"),
        ("unknown", "anything", "anything else"),
    ],
)
def test_warnings_and_unchecked_content_are_never_refused(form: str, before: str, after: str) -> None:
    assert refused_lines(before, after, form) == []
