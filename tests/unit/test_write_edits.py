"""Edits: exact, then tolerant and said so; a miss or a doubt changes nothing and shows nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.envelope import Envelope, ToolError
from perdure.surfaces.write.edits import LINES_SHOWN, Edit, apply
from perdure.surfaces.write.text import decode, encode


def edited(content: str, *edits: tuple[Any, ...]) -> str:
    return apply(content, [Edit(*edit) for edit in edits]).content


def refused(content: str, *edits: tuple[Any, ...]) -> Envelope:
    with pytest.raises(ToolError) as caught:
        apply(content, [Edit(*edit) for edit in edits])
    return caught.value.envelope


# --- exact ---------------------------------------------------------------------------------------------


@given(st.text("ab\n", max_size=30), st.text("abc\n", min_size=1, max_size=4), st.text("xyz\n", max_size=4))
def test_replacing_all_is_what_str_replace_does(content: str, old: str, new: str) -> None:
    if old == new or old not in content:
        return
    found = apply(content, [Edit(old, new, -1)])
    assert found.content == content.replace(old, new)
    assert (found.replacements, found.match) == (content.count(old), "exact")


def test_an_edit_is_applied_to_the_result_of_the_one_before() -> None:
    found = apply("one two", [Edit("one", "two", 1), Edit("two", "three", 2), Edit("three three", "done")])
    assert (found.content, found.replacements) == ("done", 4)
    assert [(one.match, one.replacements, one.line) for one in found.applied] == [
        ("exact", 1, 1),
        ("exact", 2, 1),
        ("exact", 1, 1),
    ]


def test_one_edit_that_misses_undoes_all_of_them() -> None:
    envelope = refused("one\ntwo\n", ("one", "1"), ("three", "3"))
    assert (envelope.error, envelope.suggested_action) == ("stale_precondition", "reread")
    assert (envelope.context["reason"], envelope.context["edit"]) == ("old_string_not_found", 2)


def test_count_is_exact() -> None:
    assert edited("a a a", ("a", "b", 3)) == "b b b"
    few = refused("a\na\n", ("a", "b", 3)).context
    assert (few["reason"], few["lines"]) == ("insufficient_matches", [1, 2])
    many = refused("x\na\n\na\na", ("a", "b", 2)).context
    assert (many["reason"], many["lines"]) == ("ambiguous_match", [2, 4, 5])


def test_places_that_overlap_are_ambiguous_unless_all_are_meant() -> None:
    assert refused("aaa", ("aa", "b")).context["reason"] == "ambiguous_match"
    assert refused("aaaa aa", ("aa", "b", 3)).context["reason"] == "ambiguous_match"
    assert edited("aaa", ("aa", "b", -1)) == "ba"


def test_very_many_places_are_not_all_listed() -> None:
    context = refused("a\n" * 5000, ("a", "b")).context
    assert context["lines"] == list(range(1, LINES_SHOWN + 1))
    assert context["more"] is True


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ([], "no_edits"),
        ([("", "x")], "empty_old_string"),
        ([("a", "a")], "nothing_to_change"),
        ([("a\r\n", "a\n")], "nothing_to_change"),
        ([("a", "b", 0)], "count_cannot_be_zero"),
        ([("a", "b", -2)], "bad_count"),
    ],
)
def test_an_edit_that_means_nothing_is_refused(edits: list[Any], reason: str) -> None:
    envelope = refused("a", *edits)
    assert (envelope.error, envelope.context["reason"]) == ("invalid_input", reason)


@pytest.mark.parametrize("old", ["two\nthree", "two\r\nthree"])
def test_an_edit_in_either_line_ending_matches_a_crlf_file_and_leaves_it_one(old: str) -> None:
    text = decode(b"one\r\ntwo\r\nthree\r\n")
    found = apply(text.content, [Edit(old, "2\n2.5\r\n3")])
    assert found.match == "exact"
    assert encode(text, found.content) == b"one\r\n2\r\n2.5\r\n3\r\n"


# --- tolerant ------------------------------------------------------------------------------------------


def test_trailing_whitespace_is_tolerated_and_said_so() -> None:
    found = apply("if x:  \n    y()\t\nz\n", [Edit("if x:\n    y()\n", "if x:\n    w()\n")])
    assert (found.content, found.match, found.replacements) == ("if x:\n    w()\nz\n", "tolerant", 1)


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (
            "class A:\n    def f(self):\n        return 1\n",
            "def f(self):\n    return 1\n",
            "def f(self):\n    if x:\n\n        return 2\n",
            "class A:\n    def f(self):\n        if x:\n\n            return 2\n",
        ),
        ("a:\n  b:\n", "        a:\n          b:\n", "        a:\n          c:\n", "a:\n  c:\n"),
        (
            "f {\n\tif {\n\t\tx\n\t}\n}\n",
            "    if {\n        x\n    }\n",
            "    if {\n        if {\n            y\n",
            "f {\n\tif {\n\t\tif {\n\t\t\ty\n}\n",
        ),
        ("f\n    x\n        y\n", "\tx\n\t\ty\n", "\tx\n\t\t\tz\n", "f\n    x\n            z\n"),
        ("    go(a,  \n       b)\n", "go(a,\n       b)", "go(c,\n       d)", "    go(c,\n       d)\n"),
        ("a\n  b  ", "a \n  b\n", "a\n  c\n", "a\n  c"),
    ],
    ids=["deeper", "shallower", "tabs", "spaces", "behind the indentation", "no final newline"],
)
def test_a_block_is_found_in_another_indentation_and_the_new_one_takes_it(
    content: str, old: str, new: str, expected: str
) -> None:
    found = apply(content, [Edit(old, new)])
    assert (found.content, found.match) == (expected, "tolerant")


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        ("    a\n      b\n", "a\n    b\n", "c\n"),  # the shape of the block differs
        ("a\n  b\n", "    a\n      b\n", "c\n"),  # `new` cannot be moved as far to the left
        ("\ta\n\t\tb\n", "    a\n        b\n", "   c\n"),  # three spaces are no tab of four
        ("x = 1\n", "x  =  1\n", "y\n"),  # inside a line, whitespace is content
        ("a\n", "a \n\n", "b\n"),  # the second line is not there
        ("   \n \n", "\t\n\n", "b\n"),  # nothing to hold on to
    ],
)
def test_what_is_not_certain_is_not_tolerated(content: str, old: str, new: str) -> None:
    assert refused(content, (old, new)).context["reason"] == "old_string_not_found"


def test_tolerance_counts_like_exactness() -> None:
    content = "  a \nx\n    a \n"
    assert refused(content, ("a\n", "b\n")).context["lines"] == [1, 3]
    assert edited(content, ("a\n", "b\n", 2)) == edited(content, ("a\n", "b\n", -1)) == "  b\nx\n    b\n"
    assert refused(content, ("a\n", "b\n", 3)).context["reason"] == "insufficient_matches"


BLOCKS = st.lists(
    st.tuples(st.integers(0, 3), st.text("abc(){}", min_size=1, max_size=5)), min_size=2, max_size=6
)


@given(BLOCKS, BLOCKS, st.integers(0, 2), st.booleans())
def test_a_block_moved_to_another_depth_is_always_found(
    block: list[tuple[int, str]], new: list[tuple[int, str]], depth: int, trailing: bool
) -> None:
    def written(rows: list[tuple[int, str]], extra: int, end: str) -> str:
        return "".join(f"{'    ' * (level + extra)}{text}{end}\n" for level, text in rows)

    content = f"<top>\n{written(block, depth, '  ' if trailing else '')}<end>\n"
    old, replacement = written(block, 0, ""), written(new, 0, "")
    if old == replacement or old in content:
        return
    found = apply(content, [Edit(old, replacement)])
    assert found.match == "tolerant"
    assert found.content == f"<top>\n{written(new, depth, '')}<end>\n"


# --- a miss --------------------------------------------------------------------------------------------

SECRET = "password = hunter2-and-a-long-tail"
FILE = "".join(f"def name_{i}():\n    return {i}\n\n\n" for i in range(50)) + SECRET + "\n"


def test_a_miss_tells_the_nearest_place_and_the_first_line_that_differs() -> None:
    near = refused(FILE, ("def name_30():\n    return 31\n", "x")).context["nearest"]
    assert near == {"line": 121, "diverges_at_line": 122, "text": "    xxxxxx 00"}


def test_a_miss_by_a_word_is_found_by_the_other_words() -> None:
    near = refused("alpha\nresult = compute(left, right)\n", ("result = compute(left, wrong)", "x"))
    assert near.context["nearest"]["line"] == 2


def test_a_miss_shows_neither_the_file_nor_the_edit() -> None:
    envelope = refused(FILE, ("\n" + SECRET[:-1] + "X\n", "new-secret"))
    shown = str(envelope)
    assert envelope.context["nearest"]["diverges_at_line"] == 201
    assert len(envelope.context["nearest"]["text"]) <= 80
    for word in ("password", "hunter2", "long", "new-secret"):
        assert word not in shown


def test_a_miss_in_an_empty_file_has_no_nearest_place() -> None:
    assert refused("", ("a", "b")).context["nearest"] is None


# --- bounded work ----------------------------------------------------------------------------------------------


def source(size: int, seed: int = 1) -> str:
    rng = random.Random(seed)
    words = ["self", "value", "return", "if", "for", "in", "x", "result", "=", "+", "(", ")", "{", "}"]
    rows = (
        "    " * rng.randrange(4) + " ".join(rng.choices(words, k=rng.randrange(8)))
        for _ in range(size // 25)
    )
    return "\n".join(rows)


@pytest.mark.thorough
@pytest.mark.timeout(60)
def test_two_hundred_edits_of_five_megabytes_come_to_an_end() -> None:
    rows = source(5_000_000).split("\n")
    step = len(rows) // 200
    for i in range(200):
        rows[i * step] = f"marker {i} stands here"
    content = "\n".join(rows)
    edits = [Edit(f"marker {i} stands here\n", f"edit {i}\n") for i in range(200)]
    assert apply(content, edits).replacements == 200


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "content",
    [source(2_000_000), "x" * 2_000_000, "}\n" * 1_000_000, "a b c " * 330_000, "\n" * 2_000_000],
    ids=["code", "one line", "one word", "minified", "blank"],
)
@pytest.mark.parametrize(
    "old",
    [source(2_000, seed=2), "  }\n" * 600 + "?", "a b c " * 330 + "?", "y" * 2_000, "\n" * 2000 + "?"],
    ids=["code", "one word", "minified", "one line", "blank"],
)
def test_a_miss_in_two_megabytes_is_answered(content: str, old: str) -> None:
    with pytest.raises(ToolError):
        apply(content, [Edit(old, "new")])


@pytest.mark.timeout(60)
def test_a_tolerant_search_in_a_repetitive_file_gives_up() -> None:
    with pytest.raises(ToolError):
        apply("x\n" * 200_000, [Edit("  x\n" * 2_000 + " y\n", "new")])
