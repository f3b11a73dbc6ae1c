"""What a change breaks, apart from what was broken before it."""

from __future__ import annotations

import pytest

from perdure.validate import Problem, Report, check, regressions


def report(text: str, form: str = "python") -> Report:
    return check(text, format_hint=form)


def lines(before: str, after: str, form: str) -> list[int]:
    return [problem.line for problem in regressions(report(before, form), report(after, form))]


def test_breaking_a_sound_file_is_regressions() -> None:
    assert lines("a = 1\n", "a = \n", "python") == [1]


def test_a_broken_file_may_stay_broken_when_lines_move() -> None:
    assert lines("x = (\n", "import os\n\n\nx = (\n", "python") == []


def test_mending_the_first_error_is_not_blamed_for_the_second() -> None:
    assert lines("def f(:\n    pass\n\nx = '\n", "def f():\n    pass\n\nx = '\n", "python") == []


def test_a_new_error_before_the_old_one_is_regressions() -> None:
    assert lines("a = 1\nb = 2\nx = = 1\n", "a = 1\nb = '\nx = = 1\n", "python") == [2]


def test_one_error_more_of_the_same_kind_is_worse() -> None:
    before = Report(False, "json", [Problem(2, 1, "expected ':'")], "")
    after = Report(False, "json", [Problem(2, 1, "expected ':'"), Problem(5, 1, "expected ':'")], "")
    assert [problem.line for problem in regressions(before, after)] == [5]


def test_a_grammar_is_believed_about_a_file_that_it_could_read_before() -> None:
    assert lines("int f(int a) {\n  return a;\n}\n", "int f(int a) {\n  return a + ;\n}\n", "c") == [2]
    assert lines("let a = 1;\n", "let a = ;\n", "javascript") == [1]


def test_a_grammar_is_not_believed_about_a_file_that_it_could_not_read_before() -> None:
    before = "API int f(int a) NOTHROW {\n  return a;\n}\n"
    assert report(before, "c").valid is None
    assert lines(before, before.replace("return a", "return a +"), "c") == []


def test_a_grammar_is_not_believed_about_a_new_file() -> None:
    after = report("int f(int a) {\n  return a + ;\n}\n", "c")
    assert regressions(report("anything", "unknown"), after) == []


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [
        ("html", "<p>a</p>\n", "<div>a\n"),
        ("markdown", "a\n", "```\na\n"),
        ("sql", "SELECT 1;\n", "SELECT (1;\n"),
        ("python", "a = 1\n", "print 'a'\n"),  # stands for syntax that is newer than the running version
    ],
)
def test_doubts_about_text_that_its_consumers_may_accept_never_count(
    form: str, before: str, after: str
) -> None:
    assert report(before, form).valid is True
    assert report(after, form).valid is None
    assert lines(before, after, form) == []


def test_a_file_that_cannot_be_judged_breaks_nothing() -> None:
    assert lines("a = 1\n", "-" * 200_000 + "1", "python") == []
    assert lines("anything", "anything else", "unknown") == []


def test_without_a_judgement_of_the_old_file_all_errors_count() -> None:
    assert lines("-" * 200_000 + "1", "a = \n", "python") == [1]


def test_warnings_never_count() -> None:
    assert lines('{"a": 1}', '{"a": 1, "a": 2}', "json") == []


def test_with_the_texts_an_error_of_the_same_kind_on_another_line_is_new() -> None:
    before = "def f():\n    return 1\n\ndef g(:\n    pass\n"
    after = before.replace("return 1", "return 1 +")
    assert [problem.line for problem in regressions(report(before), report(after), (before, after))] == [2]


def test_with_the_texts_an_error_that_moved_is_the_same() -> None:
    before = "a = 1\ndef g(:\n    pass\n"
    after = "# more\n# and more\n" + before.replace("a = 1", "a = 2")
    assert regressions(report(before), report(after), (before, after)) == []
    assert regressions(report(before), report(before), (before, before)) == []


def test_with_the_texts_mending_one_error_may_show_the_next() -> None:
    before = "def f(:\n    pass\n\ndef g(:\n    pass\n"
    after = before.replace("f(:", "f():")
    assert regressions(report(before), report(after), (before, after)) == []
