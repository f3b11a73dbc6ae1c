"""The checker's children: their limits, their loss, and what the caller sees of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.corpora.fuzz_validate import fault, run
from perdure.validate import Problem, Report, check
from perdure.validate.sandbox import CHILDREN, Checker


@pytest.fixture
def checker() -> Iterator[Checker]:
    with Checker(timeout_s=60) as made:
        yield made


def children(checker: Checker) -> list[int]:
    return [child.pid for child in checker._idle]


def test_a_child_says_what_the_check_says(checker: Checker) -> None:
    for form, text in (
        ("python", "def f(:\n"),
        ("yaml", "a: [1\n"),
        ("go", "package a\n"),
        ("xml", "<a></b>"),
    ):
        assert checker.check(text, format_hint=form) == check(text, format_hint=form)


def test_nothing_is_started_before_it_is_needed(checker: Checker) -> None:
    checker.check("text", target_path="a.txt")
    assert children(checker) == []
    checker.check("a: 1\n", format_hint="yaml")
    assert len(children(checker)) == 1


def test_a_child_serves_many_checks(checker: Checker) -> None:
    checker.check("a: 1\n", format_hint="yaml")
    first = children(checker)
    for _ in range(20):
        checker.check("a: 1\n", format_hint="yaml")
    assert children(checker) == first


def test_a_child_of_a_large_process_is_not_worn_by_its_parent() -> None:
    with Checker(timeout_s=60, memory_mb=200) as checker:
        ballast = b"x" * (150 << 20)
        checker.check("a: 1\n", format_hint="yaml")
        assert len(children(checker)) == 1
        del ballast


def test_a_killed_child_is_replaced(checker: Checker) -> None:
    checker.check("a: 1\n", format_hint="yaml")
    (lost,) = children(checker)
    os.kill(lost, signal.SIGKILL)
    report = checker.check("a: 1\n", format_hint="yaml")
    assert report.valid is None
    assert "failed" in report.summary
    assert checker.check("a: 1\n", format_hint="yaml").valid is True
    assert children(checker) != [lost]


def test_what_takes_too_long_is_given_up() -> None:
    with Checker(timeout_s=0.2) as checker:
        checker.check("a = 1\n", format_hint="python")
        slow = "x = [" + "{'a': [1, 2, 3]}, " * 400_000 + "]\n"
        report = checker.check(slow, format_hint="python")
        assert report.valid is None
        assert "too long" in report.summary
        assert report.errors == []
        assert children(checker) == []
        assert checker.check("a = 1\n", format_hint="toml").valid is True


@pytest.mark.thorough
def test_computing_is_limited_for_each_text_by_itself() -> None:
    with Checker(timeout_s=120, processor_s=1, memory_mb=4096) as checker:
        for _ in range(6):  # more than a second together
            assert checker.check("x = [" + "[1], " * 40_000 + "]\n", format_hint="python").valid is True
        (one,) = children(checker)
        report = checker.check("x = [" + "{'a': [1, 2, 3]}, " * 400_000 + "]\n", format_hint="python")
        assert "too long" in report.summary
        assert children(checker) != [one]


def test_a_child_that_does_not_move_is_ended() -> None:
    with Checker(timeout_s=1) as checker:
        while not children(checker):
            checker.check("a: 1\n", format_hint="yaml")
        (stuck,) = children(checker)
        os.kill(stuck, signal.SIGSTOP)
        assert "too long" in checker.check("a: 1\n", format_hint="yaml").summary
        with pytest.raises(ProcessLookupError):
            os.kill(stuck, 0)


def test_memory_is_limited() -> None:
    with Checker(timeout_s=60, memory_mb=120) as checker:
        report = checker.check("x = [" + "{'a': [1, 2, 3]}, " * 400_000 + "]\n", format_hint="python")
        assert report.valid is None
        assert checker.check("a = 1\n", format_hint="python").valid is True


def test_a_system_that_refuses_the_limit_on_memory_gets_its_checks() -> None:
    """As macOS does, and as Linux does where a lower limit is set already."""
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
        "from perdure.validate.sandbox import Checker\n"
        "with Checker(timeout_s=60, memory_mb=512) as checker:\n"
        "    print(checker.check('a: [1', format_hint='yaml').valid)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "form", ["json", "yaml", "toml", "python", "xml", "javascript", "html", "css", "latex", "c"]
)
def test_a_hundred_kilobytes_of_brackets_are_survived(form: str) -> None:
    with Checker(timeout_s=2.0) as checker:
        for mark in ("[", "(", "{", "<a>"):
            text = mark * (100_000 // len(mark))
            assert fault(checker.check(text, format_hint=form), text) in (None, "hang")


def test_threads_share_a_checker_and_get_their_own_answers(checker: Checker) -> None:
    def ask(number: int) -> int:
        text = "\n" * number + "def f(:\n"
        return checker.check(text, format_hint="python").errors[0].line

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(60))) == [number + 1 for number in range(60)]
    assert len(children(checker)) <= CHILDREN


def test_closing_ends_the_children(checker: Checker) -> None:
    checker.check("a: 1\n", format_hint="yaml")
    (pid,) = children(checker)
    checker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_lone_surrogates_are_no_obstacle(checker: Checker) -> None:
    assert checker.check("a: '\ud800'\n", format_hint="yaml").valid is True


@pytest.mark.parametrize(
    "form",
    [
        "json",
        "yaml",
        "toml",
        "xml",
        "python",
        "latex",
        "markdown",
        "html",
        "css",
        "rust",
        "c",
        "shell",
        "sql",
    ],
)
def test_mutated_files_crash_nothing(checker: Checker, form: str) -> None:
    outcomes = run(form, 25, 3, checker)
    assert all(word.startswith("valid") for word in outcomes), outcomes


def test_the_fuzzer_knows_a_fault() -> None:
    late = Report(None, "json", "exact", [], "JSON: validation took too long")
    died = Report(None, "json", "exact", [], "JSON: the parser failed on this content")
    outside = Report(False, "json", "exact", [Problem(3, 1, "x")], "")
    silent = Report(False, "json", "exact", [], "")
    assert [fault(r, "one\ntwo") for r in (late, died, outside, silent)] == [
        "hang",
        "crash",
        "place",
        "reason",
    ]
    assert fault(Report(False, "json", "exact", [Problem(2, 1, "x")], ""), "one\ntwo") is None


def test_a_check_that_takes_long_holds_up_no_other() -> None:
    with Checker(timeout_s=60, children=2) as checker, ThreadPoolExecutor(2) as threads:
        checker.check("a: 1\n", format_hint="yaml")
        (slow,) = children(checker)
        os.kill(slow, signal.SIGSTOP)
        stuck = threads.submit(checker.check, "a: [1\n", format_hint="yaml")
        try:
            while slow in children(checker):
                pass
            for _ in range(3):
                assert checker.check("b: 1\n", format_hint="yaml").valid is True
            assert not stuck.done()
        finally:
            os.kill(slow, signal.SIGCONT)
        assert stuck.result().valid is False
