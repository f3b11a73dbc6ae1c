"""The document of laws names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAWS = (ROOT / "docs" / "explanation" / "laws.md").read_text()


def test_every_law_names_a_test_and_every_named_test_exists() -> None:
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = set(re.findall(r"`(test_\w+)`", LAWS))
    assert named - written == set()
    laws = re.split(r"^\d+\. ", LAWS.split("## What servers owe")[0], flags=re.MULTILINE)[1:]
    assert len(laws) == 17
    assert [law.splitlines()[0] for law in laws if "`test_" not in law] == []
