"""Before a change is committed, no other program can see anything of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.power.driver import named, run, write_surface
from perdure.platform import files

needs_unnamed = pytest.mark.skipif(not files._TMPFILE, reason="this system has no files without a name")


@pytest.mark.parametrize("has_unnamed", [pytest.param(True, marks=needs_unnamed), False])
@pytest.mark.parametrize("size", [10, 2 << 20], ids=["small", "long"])
def test_nothing_is_seen_before_the_change_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed: bool, size: int
) -> None:
    if not has_unnamed:
        monkeypatch.setattr(files, "_TMPFILE", 0)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    (work / "d").mkdir(parents=True)
    (work / "d" / "old").write_text("old\n")
    surface: Any = write_surface(str(work), "journal")
    journal = surface.service.journal
    transact: Callable[[Callable[[], Any]], Any] = journal.transact
    seen: list[list[str]] = []

    def watched(decide: Callable[[], Any]) -> Any:
        def decided() -> Any:
            result = decide()
            seen.append(sorted(os.listdir(work / "d")))
            return result

        return transact(decided)

    monkeypatch.setattr(journal, "transact", watched)
    text = ("x" * 75 + "\n") * (size // 76 + 1)
    for arguments in ({"path": "d/new"}, {"path": "d/old", "mode": "overwrite", "force": True}):
        run(named(surface), "safe_write", {**arguments, "content": text}, "s", None)
    assert seen[0] == ["old"]
    assert seen[1] == ["new", "old"]
    assert (work / "d" / "new").read_text() == (work / "d" / "old").read_text() == text
    surface.close()
