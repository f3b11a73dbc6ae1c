"""Histories of sessions that share servers keep every promise, and a seeded bug is found."""

from __future__ import annotations

import pytest

from harness.kernel.explore import describe
from harness.kernel.histories import Tally
from harness.serve.explore import hunt_apart
from harness.serve.histories import wander


@pytest.mark.parametrize("histories", [500, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_histories_keep_every_promise(histories: int) -> None:
    tally = Tally(histories=set())
    seed = 0
    while len(tally.histories) < histories:
        wander(seed, tally)
        assert tally.failure is None, describe(tally.failure)
        seed += 1


def test_the_same_seed_walks_the_same_way() -> None:
    first, again = Tally(histories=set()), Tally(histories=set())
    wander(7, first)
    wander(7, again)
    assert first.histories == again.histories


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["the handshake is sent for every session", "a delayed start happens though its session left"]
)
def test_a_seeded_bug_is_found(name: str) -> None:
    assert hunt_apart(name, 5_000).invariant
