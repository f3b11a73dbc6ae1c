"""The explorer explores, finds nothing in the kernel, and finds the bugs that are put there."""

from __future__ import annotations

import pytest

from harness.kernel.explore import describe
from harness.kernel.histories import Failure, Tally, exhaust, replay, shrink, wander
from harness.kernel.mutants import hunt_apart
from harness.kernel.scopes import EXHAUSTIVE, RANDOM


@pytest.mark.parametrize("histories", [2_000, pytest.param(20_000, marks=pytest.mark.thorough)])
def test_histories_keep_every_promise(histories: int) -> None:
    tally = Tally()
    for scope in EXHAUSTIVE:
        exhaust(scope, tally, most=len(tally.histories) + histories // 20)
        assert tally.failure is None, describe(tally.failure)
    seed = 0
    while len(tally.histories) < histories:
        for scope in RANDOM:
            wander(scope, seed, tally)
            assert tally.failure is None, describe(tally.failure)
        seed += 1


def test_a_history_is_counted_once_and_the_same_seed_walks_the_same_way() -> None:
    first, again = Tally(), Tally()
    wander(RANDOM[0], 7, first)
    wander(RANDOM[0], 7, again)
    assert first.histories == again.histories
    wander(RANDOM[0], 7, first)
    assert first.histories == again.histories


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "NeverReplay is replayed",
        "the queue is reversed",
        "a child id is reused",
        "the incumbent is killed while it drains",
        "the successor's task under the same id is taken",
    ],
)
def test_a_seeded_bug_is_found_quickly(name: str) -> None:
    verdict = hunt_apart(name, 5_000)
    assert verdict.invariant
    assert verdict.histories < 5_000
    assert len(verdict.actions) < 12  # shrunk to what matters


def test_a_failing_history_reads_as_a_list_of_actions() -> None:
    failure = Failure("loss", ["init", "call put k", "die w 0"], "silent", "quiescence", "never answered")
    text = describe(failure)
    assert "violation of quiescence in loss" in text
    assert "  2 call put k" in text
    assert "servers silent" in text
    assert replay(EXHAUSTIVE[0], failure.actions, "answering") is None
    assert shrink(EXHAUSTIVE[0], failure) == failure
