"""The pages that make promises: each promise has tests in the table at the end, and these tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("document", "count"), [("laws.md", 18), ("writes.md", 11), ("state.md", 11), ("security.md", 6)]
)
def test_every_promise_has_tests_and_every_named_test_exists(document: str, count: int) -> None:
    text = (ROOT / "docs" / "explanation" / document).read_text()
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named - written == set()
    promises, tests = text.split("\n## The tests\n")
    laws = re.findall(r"^(\d+)\. \*\*", re.split(r"\n## (?:What|A workspace) ", promises)[0], re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| `test_", tests, re.MULTILINE)
    assert laws == rows == [str(number + 1) for number in range(count)]
