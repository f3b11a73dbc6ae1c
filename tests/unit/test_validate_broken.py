"""Ten hand-broken files of each format: found, within one line."""

from __future__ import annotations

import pytest

from harness.corpora.broken_files import SAMPLES, intact, is_found, slips
from perdure.validate import Problem, Report, check


@pytest.mark.parametrize("form", SAMPLES)
def test_the_intact_file_has_no_problem(form: str) -> None:
    report = check(intact(form), format_hint=form)
    assert (report.valid, report.errors) == (True, [])


@pytest.mark.parametrize("form", SAMPLES)
def test_nine_of_ten_slips_are_found_within_one_line(form: str) -> None:
    tried = list(slips(form))
    missed = [(s.line, s.edit) for s in tried if not is_found(s, check(s.text, format_hint=form))]
    assert len(tried) == 10
    assert len(missed) <= 1, missed


def test_there_are_eighteen_formats() -> None:
    assert len(SAMPLES) == 18


def test_a_place_further_away_or_a_mere_warning_does_not_count() -> None:
    slip = next(slips("json"))
    for line, severity, counts in (
        (slip.line, "error", True),
        (slip.line + 2, "error", False),
        (slip.line, "warning", False),
    ):
        problem = Problem(line, 1, "x", severity)  # type: ignore[arg-type]
        assert is_found(slip, Report(False, "json", [problem], "")) is counts
