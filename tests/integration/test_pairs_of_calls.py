"""Two calls at once on one path, for every pair of tools that change files, through one worker and through two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.races import pairs
from harness.races.pairs import KINDS, PAIRS, WAYS, Racers

# Through a link, too, only in the thorough run.
_WAYS = [pytest.param(way, marks=pytest.mark.thorough if way == "alias" else ()) for way in WAYS]


@pytest.fixture(scope="module", params=_WAYS)
def racers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racers]:
    made = Racers(tmp_path_factory.mktemp(request.param), request.param)
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.parametrize("first", KINDS)
def test_two_calls_at_once_end_as_one_after_the_other(racers: Racers, first: str) -> None:
    seconds = [other for one, other in PAIRS if one == first]
    assert [wrong for second in seconds for wrong in racers.race(first, second)] == []


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_many_rounds_of_every_pair_lose_no_change_and_answer_nothing_false(
    tmp_path: Path, way: pairs.Way
) -> None:
    assert pairs.run(tmp_path, way, 5).violations == []
