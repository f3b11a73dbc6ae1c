"""A content taken while it comes: all of it, once, by whoever is as slow as he likes, and dropped by nobody else."""

from __future__ import annotations

import hashlib
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.processes import wait_for
from perdure.model.spares import Spares
from perdure.storage import beside
from perdure.storage.following import Follower

DATA = os.urandom(100_000)
SOON = 10.0


class Slow:
    """Takes when it may."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.drops = 0
        self.is_taking = threading.Event()
        self.may_go_on = threading.Event()

    def take(self, beginning: memoryview) -> None:
        self.is_taking.set()
        assert self.may_go_on.wait(SOON)
        self.sizes.append(len(beginning))

    def drop(self) -> None:
        self.drops += 1


@given(st.lists(st.integers(0, len(DATA)), max_size=20))
def test_all_of_it_is_taken_and_each_time_there_is_more(sizes: list[int]) -> None:
    found: list[int] = []
    digest = hashlib.sha256()

    def take(beginning: memoryview) -> None:
        digest.update(beginning[found[-1] if found else 0 :])
        found.append(len(beginning))

    follower = Follower(take)
    for size in sorted(sizes):
        follower.reach(memoryview(DATA)[:size])
    follower.reach(memoryview(DATA))
    follower.end()
    follower.result()
    follower.close()
    assert digest.digest() == hashlib.sha256(DATA).digest()
    assert found == sorted(set(found))


def test_who_is_slow_takes_all_that_has_come_meanwhile_at_once() -> None:
    slow = Slow()
    follower = Follower(slow.take, slow.drop)
    follower.reach(memoryview(DATA)[:10])
    assert slow.is_taking.wait(SOON)
    for size in (20, 30, 40):
        follower.reach(memoryview(DATA)[:size])
    follower.end()
    slow.may_go_on.set()
    follower.result()
    assert slow.sizes == [10, 40]
    follower.close()
    assert slow.drops == 1


def test_nothing_is_dropped_while_it_is_being_taken_and_nobody_waits_for_that() -> None:
    slow = Slow()
    follower = Follower(slow.take, slow.drop)
    follower.reach(memoryview(DATA)[:10])
    assert slow.is_taking.wait(SOON)
    follower.reach(memoryview(DATA))
    follower.close()
    assert slow.drops == 0
    slow.may_go_on.set()
    assert wait_for(lambda: slow.drops == 1, SOON)
    assert slow.sizes == [10]


def test_what_was_raised_is_told_every_time_and_dropped_once() -> None:
    drops: list[int] = []

    def fail(beginning: memoryview) -> None:
        raise OSError(5, "Input/output error")

    follower = Follower(fail, lambda: drops.append(1))
    follower.reach(memoryview(DATA))
    follower.reach(memoryview(DATA))
    follower.end()
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            follower.result()
    assert drops == []
    follower.close()
    assert drops == [1]


@pytest.mark.parametrize("is_taken", [True, False])
def test_without_a_thread_it_is_taken_by_whoever_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    def none(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(beside, "_threads", Spares(beside._Thread))
    monkeypatch.setattr(beside.threading.Thread, "start", none)
    sizes: list[int] = []
    drops: list[int] = []
    follower = Follower(lambda beginning: sizes.append(len(beginning)), lambda: drops.append(1))
    follower.reach(memoryview(DATA)[:10])
    follower.reach(memoryview(DATA))
    if is_taken:
        follower.end()
        follower.result()
        follower.result()
    assert drops == []
    follower.close()
    assert (sizes, drops) == ([len(DATA)] if is_taken else [], [1])
