"""Three-way merge: the changes of both sides apply, or the conflict has their lines and nothing is merged."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.text import lines
from perdure.text.merge import Conflict, Merged, Region, merge

TEXT = st.tuples(st.lists(st.sampled_from("abcde"), max_size=12), st.booleans()).map(
    lambda drawn: "".join(f"{line}\n" for line in drawn[0])[: None if drawn[1] else -1]
)


# --- what two texts share --------------------------------------------------------------------------------


@given(TEXT, TEXT)
def test_matching_blocks_are_equal_and_in_order(one: str, other: str) -> None:
    a, b = lines.split(one), lines.split(other)
    at_a = at_b = 0
    for block in lines.find_matching_blocks(a, b):
        assert block.size > 0
        assert block.a >= at_a
        assert block.b >= at_b
        assert a[block.a : block.a + block.size] == b[block.b : block.b + block.size]
        at_a, at_b = block.a + block.size, block.b + block.size


@given(TEXT, TEXT)
def test_a_diff_turns_one_text_into_the_other(one: str, other: str) -> None:
    a, b = lines.split(one), lines.split(other)
    result: list[str] = []
    at = 0
    for change in lines.diff(a, b):
        result += a[at : change.a_start] + b[change.b_start : change.b_end]
        at = change.a_end
    assert result + a[at:] == b
    assert lines.diff(a, a) == []


# --- laws ------------------------------------------------------------------------------------------------


@given(TEXT, TEXT)
def test_a_change_of_only_one_side_is_taken(base: str, changed: str) -> None:
    assert merge(base, changed, base) == Merged(changed)
    assert merge(base, base, changed) == Merged(changed)
    assert merge(base, changed, changed) == Merged(changed)


@given(TEXT, TEXT, TEXT)
def test_a_merge_is_symmetric(base: str, ours: str, theirs: str) -> None:
    one, other = merge(base, ours, theirs), merge(base, theirs, ours)
    if isinstance(one, Merged):
        assert one == other
    else:
        assert other == Conflict(tuple(Region(r.base, r.theirs, r.ours) for r in one.regions))


@given(TEXT, TEXT, TEXT)
def test_a_merge_has_only_lines_of_its_inputs(base: str, ours: str, theirs: str) -> None:
    found = merge(base, ours, theirs)
    if isinstance(found, Merged):
        written = {line for text in (base, ours, theirs) for line in lines.split(text)}
        assert set(lines.split(found.text)) <= written


@given(TEXT, TEXT, TEXT)
def test_a_conflict_has_the_range_of_each_side(base: str, ours: str, theirs: str) -> None:
    found = merge(base, ours, theirs)
    if isinstance(found, Conflict):
        for region in found.regions:
            was, one, other = (
                lines.split(text)[start:end]
                for text, (start, end) in ((base, region.base), (ours, region.ours), (theirs, region.theirs))
            )
            assert one != other
            assert one != was or other != was


@given(st.integers(1, 30), st.data())
def test_disjoint_edits_both_apply(size: int, data: st.DataObject) -> None:
    base = [f"line {i}\n" for i in range(size)]
    owners = data.draw(st.lists(st.sampled_from(["ours", "theirs", ""]), min_size=size, max_size=size))
    kinds = data.draw(st.lists(st.sampled_from(["edit", "delete", "double"]), min_size=size, max_size=size))

    def version(*who: str) -> str:
        rows: list[str] = []
        for line, owner, kind in zip(base, owners, kinds, strict=True):
            changed = {
                "edit": [f"{owner} {line}"],
                "delete": [],
                "double": [f"{owner} {line}", f"2 {owner} {line}"],
            }
            rows += changed[kind] if owner in who else [line]
        return "".join(rows)

    assert merge("".join(base), version("ours"), version("theirs")) == Merged(version("ours", "theirs"))


# --- undo ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "now", "expected"),
    [
        ("one\ntwo\n", "ONE\ntwo\n", "ONE\nTWO\n", "one\nTWO\n"),
        ("a\n", "a\nb\n", "a\nb\nc\n", "a\nc\n"),
        ("a\nb\n", "a\nB\n", "a\nB\nc\n", "a\nb\nc\n"),
        ("", "a\n", "a\n", ""),
        ("a\nb\nc\n", "a\nc\n", "A\nc\n", "A\nb\nc\n"),
        ("a\nb", "a\nb\n", "x\na\nb\n", "x\na\nb"),
        ("a\r\nb\r\n", "a\r\nB\r\n", "A\r\nB\r\n", "A\r\nb\r\n"),
    ],
)
def test_an_older_change_is_undone_and_later_ones_stay(
    before: str, after: str, now: str, expected: str
) -> None:
    assert merge(after, now, before) == Merged(expected)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "region"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", "a\nbee\nc\n", Region((1, 2), (1, 2), (1, 2))),
        ("a\n", "a\nx\n", "a\ny\n", Region((1, 1), (1, 2), (1, 2))),
        ("", "x\n", "y\n", Region((0, 0), (0, 1), (0, 1))),
        ("a\nb\n", "", "a\nB\n", Region((0, 2), (0, 0), (0, 2))),
        ("a\n", "a", "a\nb\n", Region((0, 1), (0, 1), (0, 2))),
    ],
    ids=["same line", "same place", "empty base", "deleted and edited", "no final newline"],
)
def test_a_conflict_has_the_lines_that_collide(base: str, ours: str, theirs: str, region: Region) -> None:
    assert merge(base, ours, theirs) == Conflict((region,))


def test_lines_that_both_sides_add_at_adjacent_places_are_not_doubled() -> None:
    assert isinstance(merge("a\nb\n", "a\nn\nb\n", "a\nn\nB\n"), Conflict)


# --- bounded work ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize("vocabulary", [20_000, 500, 3], ids=["unique", "repetitive", "three words"])
def test_twenty_thousand_lines_merge(vocabulary: int) -> None:
    rng = random.Random(vocabulary)
    base = [f"word {rng.randrange(vocabulary)}\n" for _ in range(20_000)]
    ours, theirs = list(base), list(base)
    for _ in range(300):
        ours[rng.randrange(9_000)] = f"ours {rng.random()}\n"
        del theirs[rng.randrange(10_000, len(theirs))]
    found = merge("".join(base), "".join(ours), "".join(theirs))
    assert found == Merged("".join(ours[:9_500] + theirs[9_500:]))


@pytest.mark.timeout(60)
def test_two_texts_that_share_little_are_compared() -> None:
    rng = random.Random(7)
    one = [f"{rng.randrange(4)}\n" for _ in range(20_000)]
    other = [f"{rng.randrange(4)}\n" for _ in range(20_000)]
    blocks = lines.find_matching_blocks(one, other)
    assert sum(block.size for block in blocks) > 8_000
