"""Names that are not looked through for secrets: none of them can be one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.corpora import secret_corpus
from perdure import risk
from perdure.surfaces.write.gate import _PLAIN, is_plain


@pytest.mark.thorough
@settings(max_examples=500)
@given(st.from_regex(_PLAIN, fullmatch=True))
def test_what_is_plain_holds_nothing(names: str) -> None:
    assert risk.scan(names).verdict != "high"


def test_no_secret_of_the_corpus_is_plain() -> None:
    samples = list(secret_corpus.positives(seed=3, each=20))
    assert samples
    assert not [sample for sample in samples if is_plain(sample.text)]
    assert not [s for s in samples if is_plain(s.secret) and risk.scan(s.secret).verdict == "high"]


@pytest.mark.parametrize(
    "name", ["a", "src/perdure/worker/crew.py", "d7/f1234.txt", "README.md\nMakefile\n", ""]
)
def test_ordinary_names_are_plain(name: str) -> None:
    assert is_plain(name)


@pytest.mark.parametrize(
    "name", ["123-45-6789", "4111.1111.1111.1111", "10.0.0.1", "a=b", "u:p@h", "x" * 20, "a-b", "é", "f12345"]
)
def test_all_else_is_looked_through(name: str) -> None:
    assert not is_plain(name)
