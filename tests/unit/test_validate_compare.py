"""What a change breaks, apart from what was broken before it."""

from __future__ import annotations

from perdure.validate import Report, check, worse


def report(text: str, form: str = "python") -> Report:
    return check(text, format_hint=form)


def lines(before: str, after: str, form: str) -> list[int]:
    return [problem.line for problem in worse(report(before, form), report(after, form))]


def test_breaking_a_sound_file_is_worse() -> None:
    assert lines("a = 1\n", "a = \n", "python") == [1]


def test_a_broken_file_may_stay_broken_when_lines_move() -> None:
    assert lines("x = (\n", "import os\n\n\nx = (\n", "python") == []


def test_mending_the_first_error_is_not_blamed_for_the_second() -> None:
    assert lines("def f(:\n    pass\n\nx = '\n", "def f():\n    pass\n\nx = '\n", "python") == []


def test_a_new_error_before_the_old_one_is_worse() -> None:
    assert lines("a = 1\nb = 2\nx = = 1\n", "a = 1\nb = '\nx = = 1\n", "python") == [2]


def test_one_error_more_of_the_same_kind_is_worse() -> None:
    broken = "a {\n  color red;\n}\nb {\n  width: 1px;\n}\n"
    assert lines(broken, broken.replace("width:", "width"), "css") == [5]


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
    assert [problem.line for problem in worse(report(before), report(after), (before, after))] == [2]


def test_with_the_texts_an_error_that_moved_is_the_same() -> None:
    before = "a = 1\ndef g(:\n    pass\n"
    after = "# more\n# and more\n" + before.replace("a = 1", "a = 2")
    assert worse(report(before), report(after), (before, after)) == []
    assert worse(report(before), report(before), (before, before)) == []


def test_with_the_texts_mending_one_error_may_show_the_next() -> None:
    before = "def f(:\n    pass\n\ndef g(:\n    pass\n"
    after = before.replace("f(:", "f():")
    assert worse(report(before), report(after), (before, after)) == []
