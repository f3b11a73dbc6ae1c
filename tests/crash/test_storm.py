"""kill -9 at random moments. The long storm is `make storm`."""

from __future__ import annotations

import pytest

from harness.host import storm

pytestmark = pytest.mark.thorough


def test_sixty_kills_of_what_stands_behind_the_host_break_no_promise() -> None:
    seed = 1

    score = storm.run(60, seed=seed)

    assert score.violations == [], f"seed {seed}"
    assert score.counts["kills"] > 30
    assert score.counts["answered with a result"] > 0


def test_a_killed_host_leaves_nothing_behind() -> None:
    seed = 2

    score = storm.run(4, seed=seed, kill="host")

    assert score.violations == [], f"seed {seed}"
    assert score.counts["hosts killed"] == 4
