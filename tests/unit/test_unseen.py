"""What is made ready before its change is decided: nobody can see it, whatever the file system has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.power.driver import named, run, write_surface
from perdure.platform import files
from perdure.storage.files.pending import NeedsName, PendingFile

needs_unnamed = pytest.mark.skipif(not files._TMPFILE, reason="this system has no files without a name")


@pytest.fixture(params=[pytest.param(True, marks=needs_unnamed), False], ids=["unnamed", "named"])
def has_unnamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(files, "_TMPFILE", 0)
    return bool(request.param)


def test_a_file_that_must_not_be_seen_has_no_name_or_is_not_made(tmp_path: Path, has_unnamed: bool) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        if has_unnamed:
            with PendingFile(fd, "f", unseen=True) as file:
                assert os.listdir(tmp_path) == []
                file.write(b"x")
                file.create()
            assert (tmp_path / "f").read_bytes() == b"x"
        else:
            with pytest.raises(NeedsName):
                PendingFile(fd, "f", unseen=True)
            assert os.listdir(tmp_path) == []
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [10, 2 << 20], ids=["small", "long"])
def test_nothing_is_seen_before_the_change_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_unnamed: bool, size: int
) -> None:
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
            time.sleep(0.2)  # as long as a disk may take: whatever is made beside it is made by now
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
