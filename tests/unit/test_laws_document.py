"""The document of laws names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("document", "count"), [("laws.md", 17), ("writes.md", 11), ("state.md", 11)])
def test_every_law_names_a_test_and_every_named_test_exists(document: str, count: int) -> None:
    text = (ROOT / "docs" / "explanation" / document).read_text()
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named - written == set()
    laws = re.split(r"^\d+\. ", text.split("\n## What ")[0], flags=re.MULTILINE)[1:]
    assert len(laws) == count
    assert [law.splitlines()[0] for law in laws if "`test_" not in law] == []
