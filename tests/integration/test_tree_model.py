"""The short form of the tree model in `make explore`, and the seeded bugs that it must find."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from harness.tree_model import text
from harness.tree_model.seeded_bugs import BUGS


def model(*options: str) -> subprocess.CompletedProcess[str]:
    """In a process without threads, from which workers can be forked."""
    command = [sys.executable, "-m", "harness.tree_model", "--seed", "3", "--unshrunk", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("runs", [5, pytest.param(40, marks=pytest.mark.thorough)])
def test_files_journal_and_answers_are_what_the_model_says(runs: int) -> None:
    done = model("--runs", str(runs), "--steps", "30")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    found = re.search(r"^(\d+) runs of 30 steps", done.stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= runs


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_seeded_bug_is_found(name: str) -> None:
    done = model("--runs", "40", "--steps", "30", "--broken", name)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "AssertionError" in done.stdout
    assert "state = TreeMachine()" in done.stdout


BASE, UP, DOWN = b"1\n2\n3\n4\n", b"one\n2\n3\n4\n", b"1\n2\n3\nfour\n"


def test_the_models_own_merge_takes_both_sides_or_says_that_they_clash() -> None:
    assert text.merged(BASE, UP, DOWN) == b"one\n2\n3\nfour\n"
    assert text.merged(BASE, UP, b"uno\n2\n3\n4\n") == text.Clash()
    assert text.merged(b"1\n1\n", b"1\n1\n2\n", b"1\n") == text.Unclear()
    assert text.fits(b"1\n1\n", b"1\n1\n2\n", b"1\n", b"1\n2\n")
    assert not text.fits(b"1\n1\n", b"1\n1\n2\n", b"1\n", b"1\n")
    assert not text.fits(BASE, UP, DOWN, b"one\n2\n3\n4\n")


@pytest.mark.parametrize("new", ["", "1\n2\n3\n4\n5\n", "2\n3\n", "1\r\n2\n"])
def test_the_models_own_diff_leads_to_the_text_that_it_was_made_for(new: str) -> None:
    assert text.patched(text.unified("a", BASE.decode(), new), BASE.decode()) == new
    with pytest.raises(text.Misfit):
        text.patched(text.unified("a", BASE.decode(), "2\n"), "another\n")


def test_the_models_own_patching_knows_a_last_line_without_an_end() -> None:
    diff = "@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+x\n\\ No newline at end of file\n"
    assert text.patched(diff, "1\n2") == "1\nx"


def test_the_models_own_patching_puts_lines_without_context_into_an_empty_text_alone() -> None:
    diff = text.unified("a", "", "1\n2\n")
    assert text.patched(diff, "") == "1\n2\n"
    with pytest.raises(text.Misfit, match="no_context"):
        text.patched(diff, "3\n")
