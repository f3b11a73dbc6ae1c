"""Patches: parsed with certainty or refused, and applied like git applies them."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.protocol.envelope import Envelope, ToolError
from perdure.text import anchored_patch, lines
from perdure.text.codec import decode, encode
from perdure.text.diffs import unified_diff
from perdure.text.patch_parser import AnchoredHunk, HunkLine
from perdure.text.unified_patch import FilePatch, Hunk, apply, parse


def refused(call: Any, *given: Any) -> Envelope:
    with pytest.raises(ToolError) as caught:
        call(*given)
    return caught.value.envelope


def applied(patch: str, content: str) -> str:
    (one,) = parse(patch)
    return anchored_patch.apply(one, content).body if one.anchored else apply(one, content)


def apply_patch_text(*rows: str) -> str:
    return "\n".join(["*** Begin Patch", *rows, "*** End Patch", ""])


# --- unified diffs are read ------------------------------------------------------------------------------

GIT = r"""From 1234 Mon Sep 17 00:00:00 2001
Subject: [PATCH] everything at once
---
 a.txt | 2 +-
 1 file changed

diff --git a/dir/a b.txt b/dir/a b.txt
index 111..222 100644
--- a/dir/a b.txt
+++ b/dir/a b.txt
@@ -1,2 +1,2 @@ def section():
 one

-two
+2
diff --git a/old.py b/new.py
similarity index 90%
rename from old.py
rename to new.py
--- a/old.py
+++ b/new.py
@@ -1 +1 @@
-x
+y
diff --git a/only.py b/moved.py
similarity index 100%
rename from only.py
rename to moved.py
diff --git a/empty b/empty
new file mode 100755
index 0000000..e69de29
diff --git "a/caf\303\251\t.txt" "b/caf\303\251\t.txt"
new file mode 100644
--- /dev/null
+++ "b/caf\303\251\t.txt"
@@ -0,0 +1 @@
+neu
\ No newline at end of file
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
--END
2.39.5

""".replace(" one\n\n", " one\n").replace("--END", "-- ")


def test_a_git_patch_is_parsed_into_operations() -> None:
    assert parse(GIT) == (
        FilePatch(
            "update",
            "dir/a b.txt",
            hunks=(Hunk(1, ("one\n", "two\n"), ("one\n", "2\n"), 1, has_trailing_context=False),),
        ),
        FilePatch(
            "update", "old.py", "new.py", (Hunk(1, ("x\n",), ("y\n",), 1, has_trailing_context=False),)
        ),
        FilePatch("update", "only.py", "moved.py"),
        FilePatch("create", "empty", executable=True),
        FilePatch("create", "café\t.txt", hunks=(Hunk(1, (), ("neu",), 0, has_trailing_context=False),)),
        FilePatch("delete", "gone", hunks=(Hunk(1, ("bye\n",), (), 1, has_trailing_context=False),)),
        FilePatch("update", "run.sh", executable=True),
    )


@pytest.mark.parametrize(
    ("header", "path"),
    [
        ("--- a/x\n+++ b/x\n", "x"),
        ("--- x\t2024-01-01 00:00:00\n+++ x\t2024-01-02\n", "x"),
        ("--- a/x\n+++ a/x\n", "a/x"),
        ("--- ../x\n+++ ../x\n", "../x"),
        ("Index: x\n======\n--- x\n+++ x\n", "x"),
    ],
)
def test_paths_are_returned_as_given(header: str, path: str) -> None:
    (one,) = parse(header + "@@ -1 +1 @@\n-a\n+b\n")
    assert (one.op, one.path) == ("update", path)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "--- \n+++ \n",
        "--- before\n+++ after\n",
        "--- src/a.py.orig\n+++ src/a.py\n",
        "--- a/a.py\n+++ b/a.py\n",
        "--- a/src/a.py\n+++ b/src/a.py\n",
        "--- a/repo/src/a.py\n+++ b/repo/src/a.py\n",
    ],
)
def test_a_diff_of_one_file_is_for_the_path_it_comes_with(header: str) -> None:
    (one,) = parse(header + "@@ -1 +1 @@\n-a\n+b\n", "src/a.py")
    assert (one.op, one.path) == ("update", "src/a.py")


def test_a_diff_that_names_another_file_than_its_path_is_refused() -> None:
    diff = "--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert refused(parse, diff, "src/a.py").context["reason"] == "bad_patch"


@pytest.mark.parametrize(
    ("before", "after"),
    [("```diff\n", "```\n"), ("apply_patch <<'EOF'\n", "EOF\n"), ("<<EOF\n```\n", "```\nEOF")],
)
def test_a_fence_or_here_document_around_a_patch_is_removed(before: str, after: str) -> None:
    patch_text = "*** Begin Patch\n*** Add File: x\n+a\n*** End Patch\n"
    for patch in (GIT, patch_text):
        assert parse(before + patch + after) == parse(patch)
    assert refused(parse, before + patch_text).context["reason"] == "bad_patch"


def test_a_line_that_looks_like_a_header_is_content_while_the_counts_say_so() -> None:
    patch = "--- x\n+++ x\n@@ -1,2 +1,2 @@\n--- a\n-@@ b\n+++ c\n+diff --git d\n"
    assert applied(patch, "-- a\n@@ b\n") == "++ c\ndiff --git d\n"


def test_an_empty_line_is_an_empty_line_of_context() -> None:
    assert applied("--- x\n+++ x\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "a\n\nb\n") == "a\n\nc\n"


HEAD = "--- a/x\n+++ b/x\n"


@pytest.mark.parametrize(
    ("patch", "line"),
    [
        ("", 1),
        ("just text\n", 1),
        (HEAD, 2),
        ("@@ -1 +1 @@\n-a\n+b\n", 1),
        ("--- a/x\n@@ -1 +1 @@\n-a\n+b\n", 2),
        ("--- x\n+++ y\n@@ -1 +1 @@\n-a\n+b\n", 3),
        (HEAD + "@@ -1,2 +1 @@\n-a\n+b\n", 5),
        (HEAD + "@@ -1 +1 @@\n-a\n+b\n+c\n", 6),
        (HEAD + "@@ -1 +1 @@\n-a\n-b\n+c\n", 5),
        (HEAD + "@@ -1 +1 @@\n-a\nb\n", 5),
        (HEAD + "@@ ... @@\n-a\n+b\n", 3),
        (HEAD + "@@ -1,2 +1,2 @@\n a\n\\ No newline at end of file\n-b\n+c\n", 7),
        (HEAD + "@@ -1 +1 @@\n-a\r\n+a\n", 5),
        ("--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", 5),
        ("--- a/x\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 5),
        ("diff --git a/x b/x\n", 1),
        ("diff --git a/x b/y\nrename from x\n", 2),
        ("diff --git a/x b/y\ncopy from x\ncopy to y\n", 2),
        ("diff --git a/x b/x\nnew file mode 120000\n", 2),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", 2),
        ("*** Begin Patch\n*** Update File: x\n-a\n+b\n", 4),
        ("*** Begin Patch\n*** End Patch\nmore\n", 2),
        ("*** Begin Patch\n*** Update File: x\n*** End Patch\n", 3),
        ("*** Begin Patch\n*** Update File: x\na\n*** End Patch\n", 3),
        ("*** Begin Patch\n*** Add File: x\nno plus\n*** End Patch\n", 3),
        ("*** Begin Patch\n*** Add File: \n*** End Patch\n", 2),
        ("*** Begin Patch\n*** Move File: x\n*** End Patch\n", 3),
        ("*** Begin Patch\n*** Frob File: x\n*** End Patch\n", 2),
    ],
)
def test_a_malformed_patch_is_refused_with_its_line(patch: str, line: int) -> None:
    found = refused(parse, patch)
    assert (found.error, found.reason_hint, found.suggested_action) == (
        "invalid_input",
        "syntax",
        "fix_syntax",
    )
    assert found.context["reason"] == "bad_patch"
    assert found.context["patch_line"] == line


# --- and applied -------------------------------------------------------------------------------------------

TEN = "".join(f"{i}\n" for i in range(10))


def test_a_hunk_applies_where_its_lines_have_moved() -> None:
    patch = HEAD + "@@ -3,3 +3,3 @@\n 2\n-3\n+three\n 4\n@@ -8,2 +8,3 @@\n 7\n+seven and a half\n 8\n"
    moved = "new\nnew\n" + TEN
    assert applied(patch, moved) == moved.replace("3\n", "three\n").replace("7\n", "7\nseven and a half\n")


def test_a_hunk_that_fits_at_its_line_applies_there() -> None:
    patch = HEAD + "@@ -3,3 +3,3 @@\n a\n-b\n+c\n a\n"
    assert applied(patch, "a\nb\na\nb\na\nb\na\n") == "a\nb\na\nc\na\nb\na\n"
    bare = HEAD + "@@ -3,2 +3,2 @@\n a\n-b\n+c\n"
    assert applied(bare, "a\nb\na\nb\na\nb\nz\n") == "a\nb\na\nc\na\nb\nz\n"


def test_a_hunk_without_trailing_context_is_refused_if_it_also_fits_at_the_end() -> None:
    """A diff has such a hunk at the end of a file alone, and git and patch put it there, whatever its number says."""
    patch = HEAD + "@@ -1,4 +1,5 @@\n a\n a\n b\n a\n+a\n"
    found = refused(applied, patch, "a\na\nb\na\na\nb\na\n")
    assert (found.context["reason"], found.context["lines"]) == ("ambiguous_hunk", [1, 4])
    assert applied(patch, "a\na\nb\na\n") == "a\na\nb\na\na\n"


def test_a_hunk_that_fits_several_other_places_is_refused_with_the_places() -> None:
    patch = HEAD + "@@ -2,2 +2,2 @@\n a\n-b\n+c\n"
    found = refused(applied, patch, "a\nb\na\nb\na\nb\n")
    assert (found.error, found.suggested_action) == ("stale_precondition", "reread")
    assert found.context["reason"] == "ambiguous_hunk"
    assert (found.context["file"], found.context["hunk"], found.context["lines"]) == ("x", 1, [1, 3, 5])


def test_a_hunk_that_does_not_fit_is_refused_with_its_first_diverging_line() -> None:
    patch = HEAD + "@@ -1,2 +1,2 @@\n 0\n-1\n+one\n@@ -5,3 +5,3 @@\n 4\n-secret word\n+other\n 6\n"
    found = refused(applied, patch, "new\n" + TEN)
    assert found.context["reason"] == "hunk_does_not_apply"
    assert (found.context["file"], found.context["hunk"]) == ("x", 2)
    assert (found.context["diverges_at_line"], found.context["hunk_line"]) == (7, 2)
    assert "secret" not in str(found)
    assert "other" not in str(found.context)


def test_whitespace_in_a_unified_diff_must_match() -> None:
    patch = HEAD + "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    assert refused(applied, patch, "a \nb\n").context["diverges_at_line"] == 1
    assert refused(applied, patch, "a\n b\n").context["diverges_at_line"] == 2


def test_hunks_do_not_overlap_or_go_back() -> None:
    patch = HEAD + "@@ -5,2 +5,2 @@\n 4\n-5\n+five\n@@ -5,2 +5,2 @@\n 4\n-5\n+V\n"
    assert refused(applied, patch, TEN).context["hunk"] == 2


def test_lines_without_context_apply_only_to_an_empty_file() -> None:
    patch = HEAD + "@@ -0,0 +1 @@\n+a\n"
    assert applied(patch, "") == "a\n"
    assert refused(applied, patch, "b\n").context["reason"] == "no_context"


def test_a_new_or_deleted_file_is_complete() -> None:
    new = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    assert applied(new, "") == "a\nb"
    assert refused(applied, new, "there").context["reason"] == "file_not_empty"
    gone = "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert applied(gone, "a\n") == ""
    assert refused(applied, gone, "a\nb\n").context["reason"] == "not_all_deleted"


@pytest.mark.parametrize(
    ("body", "content", "expected"),
    [
        ("-b\n\\ No newline at end of file\n+b\n", "a\nb", "a\nb\n"),
        ("-b\n+b\n\\ No newline at end of file\n", "a\nb\n", "a\nb"),
        ("-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nb", "a\nc"),
        ("-b\n+c\n", "a\nb", None),
        ("-b\n\\ No newline at end of file\n+c\n", "a\nb\n", None),
        ("-b\n+c\n\\ No newline at end of file\n", "a\nb\nmore\n", None),
    ],
)
def test_the_final_newline_is_a_part_of_the_last_line(body: str, content: str, expected: str | None) -> None:
    patch = HEAD + "@@ -1,2 +1,2 @@\n a\n" + body
    if expected is None:
        assert refused(applied, patch, content).context["reason"] == "hunk_does_not_apply"
    else:
        assert applied(patch, content) == expected


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_crlf_file_accepts_a_patch_in_either_ending_and_stays_crlf(ending: str) -> None:
    text = decode(b"a\r\nb\r\nc\r\n")
    (one,) = parse((HEAD + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n").replace("\n", ending))
    assert encode(text, apply(one, text.content)) == b"a\r\nB\r\nc\r\n"


def test_a_new_file_has_the_line_endings_of_the_patch() -> None:
    new = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\r\n+b\r\n"
    assert applied(new, "") == "a\r\nb\r\n"
    assert applied(new.replace("\r", "").replace("\n", "\r\n"), "") == "a\nb\n"


def test_an_error_shows_only_the_name_of_an_absolute_path() -> None:
    found = refused(applied, "--- /srv/host/x\n+++ /srv/host/x\n@@ -1 +1 @@\n-a\n+b\n", "c\n")
    assert "/srv" not in str(found)


# --- the apply_patch format ------------------------------------------------------------------------------------------


def test_an_apply_patch_text_adds_updates_moves_and_deletes() -> None:
    found = parse(
        apply_patch_text(
            "*** Add File: new.txt",
            "+one",
            "+",
            "*** Update File: a.py",
            "*** Move to: b.py",
            "@@ class A",
            "@@ def f(self):",
            "-x",
            "+y",
            "@@ -1,2 +1,2 @@",
            " k",
            "+l",
            "*** End of File",
            "*** Delete File: gone",
            "*** Move File: c -> d",
        )
    )
    assert found == (
        FilePatch("create", "new.txt", hunks=(Hunk(1, (), ("one\n", "\n")),)),
        FilePatch(
            "update",
            "a.py",
            "b.py",
            anchored=(
                AnchoredHunk(1, (HunkLine("-", "x"), HunkLine("+", "y")), ("class A", "def f(self):")),
                AnchoredHunk(2, (HunkLine(" ", "k"), HunkLine("+", "l")), at_end=True),
            ),
        ),
        FilePatch("delete", "gone"),
        FilePatch("update", "c", "d"),
    )


CODE = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


def test_an_anchor_selects_the_place() -> None:
    rows = ("-        return 1", "+        return 2")
    patch = apply_patch_text("*** Update File: x", "@@ class B:", "@@ def f(self):", *rows)
    assert applied(patch, CODE) == CODE[: CODE.rindex("1")] + "2\n"
    ambiguous = refused(applied, apply_patch_text("*** Update File: x", "@@ def f(self):", *rows), CODE)
    assert ambiguous.context["lines"] == [2, 6]
    assert refused(applied, apply_patch_text("*** Update File: x", *rows), CODE).context["lines"] == [3, 7]
    assert (
        refused(applied, apply_patch_text("*** Update File: x", "@@ class C:", *rows), CODE).context["hunk"]
        == 1
    )
    repeated = apply_patch_text("*** Update File: x", "@@ class B:", " class B:", "+    x = 1")
    assert applied(repeated, CODE) == CODE.replace("class B:\n", "class B:\n    x = 1\n")


def test_repeated_anchors_are_accepted_if_they_lead_to_one_place() -> None:
    code = CODE.replace("return 1", "return 0", 1)
    rows = ("-        return 1", "+        return 2")
    assert applied(apply_patch_text("*** Update File: x", "@@ def f(self):", *rows), code) == code.replace(
        "1", "2"
    )
    # The second anchor is the first such line behind the first, though another class has it too.
    nested = apply_patch_text("*** Update File: x", "@@ class A:", "@@ def f(self):", *rows)
    assert applied(nested, CODE) == CODE.replace("1", "2", 1)
    # A line may be named by its beginning.
    assert (
        applied(apply_patch_text("*** Update File: x", "@@ class B", *rows), CODE)
        == CODE[::-1].replace("1", "2", 1)[::-1]
    )


def test_an_apply_patch_text_ends_added_lines_and_keeps_the_endings_of_others() -> None:
    def update(*rows: str) -> str:
        return apply_patch_text("*** Update File: x", *rows)

    assert applied(update(" a", "-b", "+c"), "a\nb") == "a\nc\n"
    assert applied(update("-a", "+A", " b"), "a\nb") == "A\nb"
    assert applied(update("-a", "+A"), "a\nb") == "A\nb"
    assert applied(update(" b", "+c"), "a\nb") == "a\nb\nc\n"
    assert applied(update("@@", " b", "+c", "*** End of File"), "b\na\nb") == "b\na\nb\nc\n"
    assert applied(update("+c"), "a\nb") == "a\nb\nc\n"
    assert applied(update("-b"), "a\nb") == "a\n"
    assert applied(update("-a"), "a") == ""
    missed = refused(applied, update(" b", "+c", "*** End of File"), "b\na\n")
    assert missed.context["hunk"] == 1


@pytest.mark.parametrize(
    ("rows", "content", "after"),
    [
        ((" a", "-b  ", "+c"), "a \t\nb\n", "a \t\nc\n"),
        ((" if x:", "-    y()", "+    z()"), "\tif x:\n\t    y()\n", "\tif x:\n\t    z()\n"),
        (("-return 'a' - 1", "+return 2"), "return \u2018a\u2019\u00a0\u2212 1\n", "return 2\n"),
        ((" a", "-b", "+c", "", ""), "a\nb\nend\n", "a\nc\nend\n"),
        ((" a", "+b", "*** End of File", ""), "a\n", "a\nb\n"),
        ((" a", "-b", "+B", " c"), "a\rb\rc", "a\rB\rc"),
        (("-a\rb", "+c"), "a\rb\n", "c\n"),
        (("-b", "+c"), "a\r\nb\nd\r\n", "a\r\nc\r\nd\r\n"),
    ],
    ids=[
        "line-ends",
        "indentation",
        "punctuation",
        "blank",
        "end-of-file",
        "returns",
        "inner-return",
        "mixed",
    ],
)
def test_old_lines_match_despite_whitespace_and_typography(
    rows: tuple[str, ...], content: str, after: str
) -> None:
    assert applied(apply_patch_text("*** Update File: x", "@@", *rows), content) == after


def test_a_looser_comparison_is_reported_and_must_be_unique() -> None:
    (one,) = parse(apply_patch_text("*** Update File: x", "-a", "+b"))
    assert anchored_patch.apply(one, "a\n") == ("b\n", "exact")
    assert anchored_patch.apply(one, "a \n") == ("b\n", "tolerant")
    # The exact place wins over a loose one; of two loose ones none is taken.
    assert anchored_patch.apply(one, "  a\na\n") == ("  a\nb\n", "exact")
    assert refused(anchored_patch.apply, one, " a\n  a\n").context["lines"] == [1, 2]
    # An indentation that differs from line to line says nothing about the added ones.
    (uneven,) = parse(apply_patch_text("*** Update File: x", " a", " b", "+c"))
    assert refused(anchored_patch.apply, uneven, " a\n   b\n").context["reason"] == "hunk_does_not_apply"
    (anchored,) = parse(apply_patch_text("*** Update File: x", "@@ a", "+c"))
    assert refused(anchored_patch.apply, anchored, "a\nb\n").context["reason"] == "no_context"


def test_markers_may_have_spaces_around_them() -> None:
    patch = "  *** Begin Patch \n *** Update File: x \n@@ \n-a\n+b\n *** End Patch  \n"
    assert applied(patch, "a\n") == "b\n"
    # Inside a hunk a leading space makes a line of context.
    inner = apply_patch_text("*** Update File: x", " *** Add File: y", "-a", "+b")
    assert applied(inner, "*** Add File: y\na\n") == "*** Add File: y\nb\n"


# --- beside git and patch ------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "c", "d", "", "}", "    return", "é"])
FILE = st.tuples(st.lists(WORDS, max_size=25), st.booleans()).map(
    lambda drawn: "\n".join(drawn[0]) + ("\n" if drawn[1] and drawn[0] else "")
)


@st.composite
def versions(draw: st.DrawFn) -> tuple[str, str]:
    """A file and what a few edits of its lines made of it."""
    old = draw(FILE)
    rows = lines.split(old)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(rows)))
        rows[at : at + draw(st.integers(0, 3))] = [f"{word}\n" for word in draw(st.lists(WORDS, max_size=3))]
    new = "".join(rows[:-1]).replace("\n\n\n", "\n\n") + (rows[-1] if rows else "")
    return old, draw(st.sampled_from([new, new.rstrip("\n"), new + "\n" if new else new]))


def diff_of(old: str, new: str, name: str = "f") -> str:
    rows: list[str] = []
    for row in difflib.unified_diff(lines.split(old), lines.split(new), f"a/{name}", f"b/{name}"):
        rows.append(row if row.endswith("\n") else row + "\n\\ No newline at end of file\n")
    return "".join(rows)


def make_apply_patch_text(old: list[str], new: list[str]) -> str:
    rows = ["*** Update File: x"]
    for group in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_grouped_opcodes(3):
        rows.append("@@")
        for tag, a0, a1, b0, b1 in group:
            rows += [f" {line}" for line in old[a0:a1] if tag == "equal"]
            rows += [f"-{line}" for line in old[a0:a1] if tag != "equal"]
            rows += [f"+{line}" for line in new[b0:b1] if tag != "equal"]
    return apply_patch_text(*rows)


@given(versions(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_an_apply_patch_text_gives_the_new_text_or_is_ambiguous(pair: tuple[str, str], newline: str) -> None:
    old, new = ([line.removesuffix("\n") for line in lines.split(text)] for text in pair)
    if old == new:
        return
    before, after = ("".join(line + newline for line in text) for text in (old, new))
    try:
        found = applied(make_apply_patch_text(old, new), before)
    except ToolError as error:
        if error.envelope.context["reason"] == "ambiguous_hunk":
            return
        raise
    assert found == (after if old else after.replace(newline, "\n"))


@given(versions())
def test_a_diff_gives_the_new_text(pair: tuple[str, str]) -> None:
    old, new = pair
    if old == new:
        return
    ours = unified_diff(old.encode(), new.encode(), old_label="a/f", new_label="b/f").text
    for patch in (diff_of(old, new), "".join(row for row in lines.split(ours) if row[:2] != "# ")):
        assert applied(patch, old) == new


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(versions(), st.lists(WORDS, max_size=6), st.booleans())
def test_git_apply_gives_the_same_result(
    tmp_path: Path, pair: tuple[str, str], above: list[str], crlf: bool
) -> None:
    old, new = pair
    if old == new:
        return
    moved = "".join(f"{word}\n" for word in above) + old

    def written(text: str) -> bytes:
        return text.replace("\n", "\r\n" if crlf else "\n").encode()

    patch = diff_of(old, new)
    given_patch = "".join(
        row[:-1] + "\r\n" if crlf and row[0] in " +-" and row[:3] not in ("---", "+++") else row
        for row in lines.split(patch)
    ).replace("\r\n\\ No", "\n\\ No")
    (tmp_path / "f").write_bytes(written(moved))
    (tmp_path / "p").write_bytes(given_patch.encode())
    git = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "p"],
        cwd=tmp_path,
        capture_output=True,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/bin:/bin"},
    )
    text = decode(written(moved))
    if crlf and moved and text.style.eol == "none":
        return  # a file without a line ending has none to keep
    if above and "\\ No newline" in patch:
        return  # git 2.39 may put the last line behind another one: "a", "a", "a" becomes "aa"
    try:
        (one,) = parse(given_patch)
        mine: bytes | None = encode(text, apply(one, text.content))
    except ToolError as error:
        mine = None
        reason = error.envelope.context["reason"]
        # Git takes the nearest of several places. What else we refuse, git refuses too.
        assert git.returncode != 0 or reason in ("ambiguous_hunk", "no_context")
    if mine is not None and git.returncode == 0:
        assert mine == (tmp_path / "f").read_bytes()


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(versions())
def test_the_patch_program_applies_our_diffs(tmp_path: Path, pair: tuple[str, str]) -> None:
    old, new = pair
    if old == new or not old or not new:
        return
    found = unified_diff(old.encode(), new.encode(), old_label="a/f", new_label="b/f")
    (tmp_path / "f").write_bytes(old.encode())
    done = subprocess.run(
        ["patch", "-s", "-p1", "-F0", "f"], cwd=tmp_path, input=found.text.encode(), capture_output=True
    )
    assert done.returncode == 0, done
    assert (tmp_path / "f").read_bytes() == new.encode()
