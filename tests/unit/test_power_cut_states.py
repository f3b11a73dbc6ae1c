"""Which states of a disk count as those a power cut can leave."""

from __future__ import annotations

import os
import sys

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("disks of power cuts are memory files of Linux", allow_module_level=True)

from harness.power import devices
from harness.power.cuts import Cut, Disk, choose
from harness.power.disk_log import Flush, Mark, Record, Write
from harness.power.trials import Tally

BLOCK = devices.BLOCK


def block(number: int, letter: bytes, count: int = 1) -> Write:
    return Write(number * BLOCK, letter * BLOCK * count)


LOG: list[Record] = [
    block(0, b"a"),
    Mark("begin"),
    Flush(),
    block(1, b"b", 2),
    Mark("done"),
    block(0, b"c"),
    block(3, b"d"),
    Flush(),
    block(4, b"e"),
]


def contents(cut: Cut) -> bytes:
    """One letter for each of the first five blocks: what all of it is, `?` where it is mixed, `.` for nothing."""
    image = os.memfd_create("disk")
    os.ftruncate(image, devices.SIZE)
    disk = Disk(image, LOG)
    try:
        state = disk.at(cut)
        blocks = [set(os.pread(state, BLOCK, number * BLOCK)) for number in range(5)]
        os.close(state)
    finally:
        disk.close()
        os.close(image)
    return bytes(found.pop() or ord(".") if len(found) == 1 else ord("?") for found in blocks)


def test_what_was_flushed_before_a_cut_is_there_and_what_comes_after_it_is_not() -> None:
    cuts = choose(LOG, 400, seed=1)
    assert {cut.flushed for cut in cuts} == {0, 3, 8}
    for cut in cuts:
        found = contents(cut)
        if cut.flushed >= 3:
            assert found[0:1] != b"."
        if cut.flushed == 8:
            assert found[:4] == b"cbbd"
        if cut.position <= 7:
            assert found[4:5] == b"."


def test_between_flushes_any_block_may_be_there_or_not_and_one_may_be_torn() -> None:
    found = {contents(cut) for cut in choose(LOG, 400, seed=1) if cut.flushed == 3}
    whole = {state for state in found if b"?" not in state}
    assert whole == {
        bytes((first, *middle, fourth, ord(".")))
        for first in b"ac"
        for middle in (b"..", b"b.", b".b", b"bb")
        for fourth in b".d"
    }
    assert found - whole


def test_no_state_is_counted_twice_and_what_was_said_by_then_makes_a_difference() -> None:
    cuts = choose(LOG, 400, seed=1)
    said = [sum(isinstance(record, Mark) for record in LOG[: cut.position]) for cut in cuts]
    keys = [(cut.flushed, cut.kept, marks) for cut, marks in zip(cuts, said, strict=True)]
    assert len(set(keys)) == len(keys)
    assert {(0, ()), (3, ())} <= {(cut.flushed, cut.kept) for cut in cuts}
    assert {marks for (flushed, kept, marks) in keys if (flushed, kept) == (3, ())} == {1, 2}


def test_a_log_that_goes_on_from_a_cut_is_cut_only_where_it_was_written() -> None:
    assert min(cut.position for cut in choose(LOG, 100, seed=1, start=3)) >= 3


@pytest.mark.parametrize(
    ("findings", "is_clean"),
    [({}, True), ({"unmounted": 2}, True), ({"unmounted": 3}, False), ({"unmounted": 1, "closed": 1}, False)],
)
def test_a_disk_that_its_file_system_refuses_says_nothing_of_ours_unless_there_are_many(
    findings: dict[str, int], is_clean: bool
) -> None:
    assert Tally(states=200, findings=findings).is_clean is is_clean
