"""The sample that a reader judges, and what must not be in any text: a pronoun for a component."""

from __future__ import annotations

import pytest

from harness.reader_sample import PRONOUNS, Sentence, draw, find_subjects, main, read_sentences


@pytest.fixture(scope="module")
def groups() -> dict[str, list[Sentence]]:
    return read_sentences()


@pytest.mark.parametrize("group", ["docs", "help texts"])
def test_no_pronoun_stands_for_a_component(groups: dict[str, list[Sentence]], group: str) -> None:
    assert find_subjects(groups[group]) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Who is over a limit gets 429.", 1),
        ("The lock is kept until somebody else asks, since nobody can know.", 1),
        ("A call is lost; whoever waits is told.", 1),
        ("The person who asked reads a file of somebody else.", 0),
        ("one change: who made it, and when", 0),
        ("Who may connect?", 0),
    ],
)
def test_only_the_subject_of_a_clause_counts(text: str, count: int) -> None:
    assert len(find_subjects([Sentence("here", text)])) == count


def test_a_seed_draws_the_same_sentences_from_every_group(groups: dict[str, list[Sentence]]) -> None:
    drawn = draw(groups, 60, seed=1)
    assert drawn == draw(groups, 60, seed=1) != draw(groups, 60, seed=2)
    assert len(set(drawn)) == 60
    for group in groups.values():
        assert sum(sentence in group for sentence in drawn) >= 15


@pytest.mark.thorough
def test_the_script_prints_the_sentences_and_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--count", "20"]) == 0
    sample, counts = capsys.readouterr().out.split("pronouns as subjects:")
    assert "\n 20. " in sample
    assert all(
        word in counts for word in (*PRONOUNS, "docs", "help texts", "tool texts", "errors", "code comments")
    )
