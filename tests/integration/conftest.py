"""Fixtures of several integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from write_tools import Tools


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tools]:
    """The write tools on an empty workspace."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    opened = Tools(tmp_path / "work")
    yield opened
    opened.close()
