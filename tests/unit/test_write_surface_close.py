"""Closing the write surface while the commit thread still completes a call."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.power.driver import FULL, PowerCall, named, write_surface
from perdure.surfaces.write.write import SafeWrite


def test_close_waits_for_the_callbacks_of_the_commit_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result of a call is there before its callbacks have run: a caller may close the surface in between."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    surface = write_surface(str(tmp_path / "work"), "journal")
    is_closing = threading.Event()
    release = surface._release

    def release_late(*given: object) -> None:
        is_closing.wait(30)
        release(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(surface, "_release", release_late)
    tool = named(surface)["safe_write"]
    call = PowerCall("safe_write", "s", None, FULL)
    assert tool.run(SafeWrite(path="a", content="1\n"), call)["journal_id"] == "1"

    closing = threading.Thread(target=surface.close, daemon=True)
    closing.start()
    closing.join(0.2)  # it has come as far as it can
    is_closing.set()
    closing.join(30)
    assert not closing.is_alive()
