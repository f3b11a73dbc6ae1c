"""The short form of `make crash`, and a proof that it can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.crash.hunt import hunt
from harness.crash.write_storm import VICTIMS, storm


@pytest.fixture(autouse=True)
def _kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a violated session leaves for inspection."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.mark.thorough
def test_whoever_is_killed_nothing_acknowledged_is_lost_or_done_twice() -> None:
    seed = 1

    tally = storm(6, seed, most_kills=4, company=False)

    assert tally.violations == [], f"seed {seed}, kept in {[one.folder for one in tally.violated]}"
    assert all(tally.killed(victim) for victim in VICTIMS)
    assert tally.counts["done"] > 0


@pytest.mark.thorough
def test_kills_within_the_restart_budget_cost_no_call_its_answer() -> None:
    seed = 2

    tally = storm(4, seed, only="paced", company=False)

    assert tally.violations == [], f"seed {seed}, kept in {[one.folder for one in tally.violated]}"
    assert tally.counts["done"] > 0
    assert tally.counts["not_started"] == 0


@pytest.mark.thorough
def test_an_editor_and_a_second_worker_at_the_same_files_change_nothing_about_that() -> None:
    seed = 3

    tally = storm(32, seed, only="bare", most_kills=16, company=True)

    assert tally.violations == [], f"seed {seed}, kept in {[one.folder for one in tally.violated]}"
    assert tally.counts["foreign edits"] > 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "a write is acknowledged before the journal commits",
        "recovery is skipped",
        "no invocation is recorded",
        "what did not land is called settled",
        "a worker falls, and its host makes up for it",
    ],
)
def test_a_seeded_bug_is_found(name: str) -> None:
    assert hunt(name).violations
