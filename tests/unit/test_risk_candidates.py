"""Which of the confirmed places stay where they overlap."""

from __future__ import annotations

import random

from perdure.risk.candidates import STRETCH, TIERS, Candidate, drop_overlaps


def place(start: int, end: int, *, rank: int = 1, generic: bool = False) -> Candidate:
    return Candidate(start, end, "rule", "kind", "generic" if generic else "precise", 0, rank)


def drop_overlaps_by_definition(found: list[Candidate]) -> list[Candidate]:
    """The same by its definition: the best first, then each that touches none of the kept."""
    kept: list[Candidate] = []
    for each in sorted(found, key=lambda one: (TIERS[one.tier], -one.rank, one.start - one.end, one.start)):
        if all(each.end <= other.start or other.end <= each.start for other in kept):
            kept.append(each)
    return sorted(kept, key=lambda one: one.start)


def test_the_better_tier_stays_then_the_higher_rank_then_the_longer_one() -> None:
    sure, unsure = place(5, 9), place(0, 30, rank=90, generic=True)
    assert drop_overlaps([unsure, sure]) == [sure]
    assert drop_overlaps([place(0, 9), place(5, 20, rank=2)]) == [place(5, 20, rank=2)]
    assert drop_overlaps([place(0, 4), place(2, 20)]) == [place(2, 20)]


def test_a_place_that_only_a_dropped_one_touched_stays() -> None:
    left, middle, right = place(0, 10), place(8, 20, rank=2), place(18, 30, rank=3)
    assert drop_overlaps([left, middle, right]) == [left, right]


def test_what_stays_is_the_same_as_by_the_definition() -> None:
    chance = random.Random(11)
    for _ in range(300):
        found = []
        for _ in range(chance.randrange(2, 40)):
            start = chance.randrange(6 * STRETCH)
            length = chance.choice((1, 20, 400, STRETCH, 3 * STRETCH))
            found.append(
                place(start, start + length, rank=chance.randrange(4), generic=chance.random() < 0.5)
            )
        found.sort(key=lambda one: one.start)
        assert drop_overlaps(found) == drop_overlaps_by_definition(found)
