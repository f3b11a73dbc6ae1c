"""The short form of `make crash`."""

from __future__ import annotations

from perdure.testing.write_storm import storm


def test_nothing_acknowledged_is_lost_however_often_the_worker_dies() -> None:
    tally = storm(kills=12, seed=5, seconds=60)
    assert tally.violations == []
    assert tally.kills > 0
    assert tally.acknowledged > 0
