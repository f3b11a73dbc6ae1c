"""Ten hand-broken files of each format: how many are noticed, and how many of them near the slip."""

from __future__ import annotations

import pytest

from harness.corpora.broken_files import SAMPLES, Recall, intact, is_near, recall, slips
from perdure.validate import Problem, Report, check

# Of ten: noticed, refused as a write over the intact file, first finding at most five lines away.
FLOORS = {
    "json": (10, 10, 9),
    "yaml": (10, 10, 10),
    "toml": (10, 10, 9),
    "xml": (10, 10, 9),
    "latex": (8, 8, 8),
    "markdown": (8, 0, 8),
    "html": (10, 0, 10),
    "css": (8, 8, 6),
    "python": (10, 10, 10),
    "javascript": (10, 10, 9),
    "typescript": (9, 9, 8),
    "go": (10, 10, 8),
    "rust": (10, 10, 8),
    "java": (10, 10, 9),
    "c": (10, 10, 10),
    "cpp": (10, 10, 9),
    "shell": (10, 10, 7),
    "sql": (4, 0, 3),
}
NEVER_REFUSED = ("markdown", "html", "sql")


@pytest.fixture(scope="module")
def recalls() -> dict[str, Recall]:
    return {form: recall(form) for form in SAMPLES}


@pytest.mark.parametrize("form", SAMPLES)
def test_the_intact_file_has_no_problem(form: str) -> None:
    report = check(intact(form), format_hint=form)
    assert (report.valid, report.errors) == (True, [])


@pytest.mark.parametrize("form", SAMPLES)
def test_as_many_slips_are_noticed_as_were(form: str, recalls: dict[str, Recall]) -> None:
    counts = recalls[form]
    figures = (counts.noticed, counts.refused, counts.near)
    print(f"{form}: noticed, refused, near: {figures}")
    assert all(figure >= floor for figure, floor in zip(figures, FLOORS[form], strict=True)), figures
    assert len(list(slips(form))) == 10


@pytest.mark.parametrize("form", NEVER_REFUSED)
def test_what_consumers_accept_is_never_refused(form: str, recalls: dict[str, Recall]) -> None:
    assert recalls[form].refused == 0


def test_there_are_eighteen_formats() -> None:
    assert len(SAMPLES) == len(FLOORS) == 18


def test_a_place_further_away_does_not_count_as_near() -> None:
    slip = next(slips("json"))
    for line, counts in ((slip.line, True), (slip.line + 5, True), (slip.line + 6, False)):
        assert is_near(slip, Report(False, "json", [Problem(line, 1, "x")], "")) is counts
    assert not is_near(slip, Report(True, "json", [Problem(slip.line, 1, "x", "warning")], ""))
