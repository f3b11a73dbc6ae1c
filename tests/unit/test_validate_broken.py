"""Ten hand-broken files of each format: how many are noticed, and how many of them near the slip."""

from __future__ import annotations

import pytest

from harness.corpora.broken_files import SAMPLES, Recall, intact, is_near, recall, slips
from perdure.validate import Problem, Report, check
from perdure.validate.report import LEVELS, Level

# Of ten: noticed, refused as a write over the intact file, first finding near (one line if exact, else five).
FLOORS = {
    "json": (10, 10, 9),
    "yaml": (10, 10, 10),
    "toml": (10, 10, 8),
    "xml": (10, 10, 9),
    "latex": (10, 9, 9),
    "markdown": (3, 0, 3),
    "html": (10, 10, 10),
    "css": (8, 8, 8),
    "python": (10, 10, 9),
    "javascript": (10, 10, 9),
    "typescript": (9, 9, 9),
    "go": (10, 10, 8),
    "rust": (10, 10, 8),
    "java": (10, 10, 9),
    "c": (10, 10, 10),
    "cpp": (10, 10, 9),
    "shell": (10, 10, 5),
    "sql": (9, 9, 9),
}


@pytest.fixture(scope="module")
def recalls() -> dict[str, Recall]:
    return {form: recall(form) for form in SAMPLES}


@pytest.mark.parametrize("form", SAMPLES)
def test_the_intact_file_has_no_problem(form: str) -> None:
    report = check(intact(form), format_hint=form)
    assert (report.valid, report.errors) == (None if form == "markdown" else True, [])


@pytest.mark.parametrize("form", SAMPLES)
def test_as_many_slips_are_noticed_as_were(form: str, recalls: dict[str, Recall]) -> None:
    counts = recalls[form]
    figures = (counts.noticed, counts.refused, counts.near)
    print(f"{form}: noticed, refused, near: {figures}")
    assert all(figure >= floor for figure, floor in zip(figures, FLOORS[form], strict=True)), figures
    assert len(list(slips(form))) == 10


@pytest.mark.parametrize(("level", "share"), [("exact", 0.9), ("grammar", 0.8)])
def test_most_slips_of_a_level_are_found_near(level: str, share: float, recalls: dict[str, Recall]) -> None:
    near = [counts.near for form, counts in recalls.items() if LEVELS[form] == level]
    assert sum(near) >= share * 10 * len(near)


def test_there_are_eighteen_formats() -> None:
    assert len(SAMPLES) == len(FLOORS) == 18


@pytest.mark.parametrize(("level", "lines"), [("exact", 1), ("grammar", 5)])
def test_a_place_further_away_does_not_count_as_near(level: Level, lines: int) -> None:
    slip = next(slips("json"))
    for away, counts in ((0, True), (lines, True), (lines + 1, False)):
        report = Report(False, "json", level, [Problem(slip.line + away, 1, "x")], "")
        assert is_near(slip, report) is counts
