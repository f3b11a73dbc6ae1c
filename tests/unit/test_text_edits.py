"""Edits: exact matches first, then tolerant ones with a warning; a mismatch changes nothing and quotes both sides."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.protocol.envelope import Envelope
from perdure.risk import DEFAULT
from perdure.surfaces.write.edit_errors import MAX_QUOTED, make_tool_error
from perdure.text.codec import decode, encode
from perdure.text.edits import MAX_LISTED_MATCHES, Edit, EditError, apply


def edited(content: str, *edits: tuple[Any, ...]) -> str:
    return apply(content, [Edit(*edit) for edit in edits]).content


def refused(content: str, *edits: tuple[Any, ...]) -> Envelope:
    with pytest.raises(EditError) as caught:
        apply(content, [Edit(*edit) for edit in edits])
    return make_tool_error(caught.value, "the file", DEFAULT, retries=0).envelope


# --- exact ---------------------------------------------------------------------------------------------


@given(st.text("ab\n", max_size=30), st.text("abc\n", min_size=1, max_size=4), st.text("xyz\n", max_size=4))
def test_replacing_all_equals_str_replace(content: str, old: str, new: str) -> None:
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


def test_no_edit_applies_if_one_does_not_match() -> None:
    envelope = refused("one\ntwo\n", ("one", "1"), ("three", "3"))
    assert (envelope.error, envelope.suggested_action) == ("stale_precondition", "reread")
    assert (envelope.context["reason"], envelope.context["edit"]) == ("old_string_not_found", 2)


def test_a_text_must_occur_exactly_count_times() -> None:
    assert edited("a a a", ("a", "b", 3)) == "b b b"
    few = refused("a\na\n", ("a", "b", 3)).context
    assert (few["reason"], few["lines"]) == ("insufficient_matches", [1, 2])
    many = refused("x\na\n\na\na", ("a", "b", 2)).context
    assert (many["reason"], many["lines"]) == ("ambiguous_match", [2, 4, 5])


def test_overlapping_places_are_ambiguous_unless_all_are_replaced() -> None:
    assert refused("aaa", ("aa", "b")).context["reason"] == "ambiguous_match"
    assert refused("aaaa aa", ("aa", "b", 3)).context["reason"] == "ambiguous_match"
    assert edited("aaa", ("aa", "b", -1)) == "ba"


def test_very_many_places_are_not_all_listed() -> None:
    context = refused("a\n" * 5000, ("a", "b")).context
    assert context["lines"] == list(range(1, MAX_LISTED_MATCHES + 1))
    assert context["more"] is True


def test_all_places_are_counted_where_there_are_too_few_of_very_many() -> None:
    context = refused("a\n" * 150, ("a", "b", 200)).context
    assert len(context["lines"]) == MAX_LISTED_MATCHES
    assert context["actual_count"] == 150
    assert "occurs 150 times" in context["message"]


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
def test_an_invalid_edit_is_refused(edits: list[Any], reason: str) -> None:
    envelope = refused("a", *edits)
    assert (envelope.error, envelope.context["reason"]) == ("invalid_input", reason)


@pytest.mark.parametrize("old", ["two\nthree", "two\r\nthree"])
def test_an_edit_in_either_line_ending_matches_a_crlf_file_and_leaves_it_one(old: str) -> None:
    text = decode(b"one\r\ntwo\r\nthree\r\n")
    found = apply(text.content, [Edit(old, "2\n2.5\r\n3")])
    assert found.match == "exact"
    assert encode(text, found.content) == b"one\r\n2\r\n2.5\r\n3\r\n"


# --- tolerant ------------------------------------------------------------------------------------------


def test_trailing_whitespace_is_tolerated_with_a_warning() -> None:
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
def test_a_block_matches_in_another_indentation_and_its_replacement_gets_it(
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
        ("a\n", "a \n\n", "b\n"),  # the second line is not there
        ("   \n \n", "\t\n\n", "b\n"),  # nothing to hold on to
    ],
)
def test_an_uncertain_indentation_is_not_tolerated(content: str, old: str, new: str) -> None:
    assert refused(content, (old, new)).context["reason"] == "old_string_not_found"


def test_tolerant_matches_are_counted_like_exact_ones() -> None:
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


# --- spacing inside a line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (
            "    total = a + b * 12\n",
            "    total = a + b*12",
            "    total = a + b*13",
            "    total = a + b * 13\n",
        ),
        ("x = f(a, b)  # c\n", "f(a,b)", "g(a,b)", "x = g(a, b)  # c\n"),
        ("key: value\n", "key:value", "key:other", "key: other\n"),
        ("x   = 1\ny = 2\n", "x = 1\ny=2\n", "x = 1\ny=3\n", "x   = 1\ny = 3\n"),
        ("f('a  b', c)\n", "f('a  b',c)", "g('a  b',c)", "g('a  b', c)\n"),
        ("x(\n", "x (", "x y", "x y\n"),
    ],
    ids=["operator", "inside a line", "colon", "two lines", "a string that is the same", "words stay apart"],
)
def test_spacing_inside_a_line_is_tolerated_and_the_file_keeps_its_own(
    content: str, old: str, new: str, expected: str
) -> None:
    found = apply(content, [Edit(old, new)])
    assert (found.content, found.match) == (expected, "tolerant")
    assert found.warnings == [
        "edit 1 matched line 1 apart from whitespace; the file's own whitespace is kept"
    ]


@pytest.mark.parametrize(
    ("content", "old"),
    [
        ('say("a, b")\n', 'say("a,b")'),  # in a string, whitespace has a meaning
        ('say("x: a, b")\n', "a,b"),  # the place is inside a string
        ("it's (a, b)\n", "it's (a,b)"),  # behind a quote that has no end
        ("not x\n", "notx"),
        ('f "x"\n', 'f"x"'),
        ("a - -b\n", "a --b"),
        ("ab = 1\n", "b=1"),  # a word is found whole
        ("if x:\n        y = 1\n", "if x:\n    y=1\n"),  # the indentation differs as well
    ],
)
def test_spacing_that_can_change_the_meaning_is_not_tolerated(content: str, old: str) -> None:
    assert refused(content, (old, "new")).context["reason"] == "old_string_not_found"


def test_spacing_is_not_tolerated_where_it_fits_two_places() -> None:
    content = "f(a, b)\nf(a,  b)\n"
    context = refused(content, ("f(a,b)", "x")).context
    assert (context["reason"], context["lines"]) == ("ambiguous_match", [1, 2])
    assert refused("a, a, a\n", ("a ,a", "x")).context["reason"] == "ambiguous_match"
    assert edited(content, ("f(a,b)", "x", -1)) == "x\nx\n"
    assert edited("a, a, a\n", ("a ,a", "x", -1)) == "x, a\n"


TOKENS = st.lists(st.sampled_from(["a", "b1", "+", "*", "(", ")", ",", "'q r'"]), min_size=2, max_size=8)


@given(TOKENS, TOKENS, st.data())
def test_an_edit_in_other_spacing_writes_the_same_tokens(old: list[str], new: list[str], data: Any) -> None:
    def spaced(tokens: list[str]) -> str:
        gaps = data.draw(st.lists(st.sampled_from([" ", "  "]), min_size=len(tokens), max_size=len(tokens)))
        return "".join(token + gap for token, gap in zip(tokens, gaps, strict=True)).strip()

    content, wanted, replacement = spaced(old), spaced(old), spaced(new)
    if wanted == replacement or "a" not in old:
        return
    assert edited(f"<\n{content}\n>\n", (wanted, replacement)).split() == ["<", *replacement.split(), ">"]


# --- a miss --------------------------------------------------------------------------------------------

FILE = "".join(f"def name_{i}():\n    total = a + b * {i}\n    return total\n\n\n" for i in range(50))
SECRET = "ghp_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"


def test_a_mismatch_quotes_both_sides_of_the_first_line_that_differs() -> None:
    envelope = refused(FILE, ("def name_30():\n    total = a + b * 31\n", "x"))
    assert envelope.context["nearest"] == {
        "line": 151,
        "diverges_at_line": 152,
        "sent": "    total = a + b * 31",
        "found": "    total = a + b * 30",
    }
    assert envelope.context["message"] == (
        'not edited: edit 1 is not in the file. Nearest, line 152: "    total = a + b * 30" '
        '(you sent "    total = a + b * 31").'
    )
    assert "start_line:=146 end_line:=157" in envelope.context["next"]


@pytest.mark.parametrize(
    ("old", "line", "found"),
    [
        ("    retrun total", 3, "    return total"),
        ("nmae_42(", 211, "def name_42():"),
        ("total = a + b*17 + c", 87, "    total = a + b * 17"),
        ("def name_7():\n    total = a+b * 7\n    return totl\n", 36, "    return total"),
    ],
)
def test_the_nearest_place_is_found_despite_typos(old: str, line: int, found: str) -> None:
    near = refused(FILE, (old, "x")).context["nearest"]
    assert (near["line"], near["found"]) == (line, found)


def test_a_mismatch_masks_secrets_and_nothing_else() -> None:
    envelope = refused(
        f"user = 'me'\ntoken = '{SECRET}'  # mine\n", (f"tokn = '{SECRET[:-1]}X'  # mine", "x")
    )
    near = envelope.context["nearest"]
    assert near["found"].startswith("token = '[REDACTED:")
    assert near["found"].endswith("]'  # mine")
    assert near["sent"].startswith("tokn = '[REDACTED:")
    assert SECRET[8:20] not in str(envelope)


def test_a_long_line_is_quoted_around_the_difference() -> None:
    line = "".join(f"word{i} " for i in range(200))
    near = refused(line, (line.replace("word150", "wrod150"), "x")).context["nearest"]
    assert "word150" in near["found"]
    assert "wrod150" in near["sent"]
    assert max(len(near["found"]), len(near["sent"])) <= MAX_QUOTED


def test_a_block_that_continues_behind_the_end_of_the_file() -> None:
    context = refused("one = 1\ntwo = 2\n", ("one = 1\ntwo = 2\nthree = 3\n", "x")).context
    assert (context["nearest"]["diverges_at_line"], context["nearest"]["found"]) == (3, "")
    assert 'the file ends before "three = 3"' in context["message"]


@pytest.mark.parametrize("content", ["", "something else\n"])
def test_a_mismatch_without_a_similar_place(content: str) -> None:
    context = refused(content, ("zzzz(qqq)", "b")).context
    assert context["nearest"] is None
    assert context["message"] == "not edited: edit 1 is not in the file, and nothing in the file is similar."


def test_a_text_that_an_earlier_edit_changed() -> None:
    context = refused("one\ntwo\n", ("one", "1"), ("one", "uno")).context
    assert "an earlier edit of this call changed that text" in context["message"]


def test_line_numbers_of_a_mismatch_are_those_of_the_file_before_the_edits() -> None:
    context = refused(
        FILE, ("def name_0():", "# new\n" * 20 + "def name_0():"), ("def nmae_30():", "x")
    ).context
    assert (context["edit"], context["nearest"]["line"]) == (2, 151)


def test_the_message_of_an_ambiguous_edit() -> None:
    envelope = refused(FILE, ("return total", "x"))
    assert envelope.context["message"] == (
        'not edited: "return total" occurs 50 times in the file (lines 3, 8, 13, 18, 23, …). '
        "Add surrounding lines to make it unique, or count=-1 for all."
    )
    few = refused("a a\n", ("a", "b", 3)).context["message"]
    assert few == (
        'not edited: "a" occurs 2 times in the file (line 1), and count is 3. '
        "Give the number that is there, or count=-1 for all."
    )


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
def test_two_hundred_edits_of_five_megabytes_end_in_time() -> None:
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
def test_a_mismatch_in_two_megabytes_ends_in_time(content: str, old: str) -> None:
    assert refused(content, (old, "new")).error == "stale_precondition"


@pytest.mark.timeout(60)
def test_a_tolerant_search_in_a_repetitive_file_gives_up() -> None:
    assert refused("x\n" * 200_000, ("  x\n" * 2_000 + " y\n", "new")).error == "stale_precondition"
