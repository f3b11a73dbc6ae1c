"""A directory that becomes a link while it is written through."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.races.swap_race import Way, race
from perdure.platform.files import can_open_beneath

pytestmark = pytest.mark.thorough

ATTEMPTS = 5_000


@pytest.mark.parametrize("way", ["kernel", "walk"])
def test_no_write_follows_a_directory_that_is_swapped_for_a_link(tmp_path: Path, way: Way) -> None:
    if way == "kernel" and not can_open_beneath():
        pytest.skip("this kernel has no openat2")

    outcome = race(tmp_path, ATTEMPTS, way)

    assert outcome.escaped == 0
    assert outcome.landed > 0
    assert outcome.refused > 0, "the race was never met"


def test_checking_a_path_before_opening_it_loses_the_same_race(tmp_path: Path) -> None:
    assert any(race(tmp_path / str(n), 2_000, "naive").escaped for n in range(20))
