"""What goes wrong where no caller can be told stands in the event log, without a content."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from write_tools import Tools

from harness.store_location import store_of
from perdure.platform import fault_points
from perdure.storage.files import pending
from perdure.workspace import sync_pass

SECRET = "nobody but the file holds this\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def logged(workspace: Path) -> list[dict[str, Any]]:
    lines = (workspace.parent / "home" / "log" / "events.jsonl").read_text().splitlines()
    assert SECRET.strip() not in "".join(lines)
    return [record for line in lines if (record := msgspec.json.decode(line))["event"] == "log"]


def test_a_sync_that_fails_is_logged(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    tools = Tools(workspace)
    assert tools.use("safe_write", {"path": "a", "content": SECRET})[0]
    with monkeypatch.context() as patched:
        patched.setattr(sync_pass, "sync_file", failing)
        patched.setattr(pending, "sync_file", failing)
        tools.close()

    failed, open_row = logged(workspace)
    assert (failed["level"], open_row["level"]) == ("error", "error")
    assert "sync of a failed" in failed["message"]
    assert "row 1 is not durable: a: fsync_failed/EIO" in open_row["message"]


def test_a_recovery_that_cannot_finish_is_logged_with_the_file_it_waits_for(workspace: Path) -> None:
    tools = Tools(workspace)
    (workspace / "a").write_text("old\n")
    assert tools.use("safe_write", {"path": "a", "content": SECRET, "mode": "overwrite"})[0]
    (workspace / "a").write_text("old\n")
    (store_of(workspace, workspace.parent / "home") / "landed").write_text(
        ""
    )  # as if it had been killed before anything landed
    fault_points.arm("write.open_temp=erofs")
    try:
        waiting = Tools(workspace)
        assert waiting.use("journal_tail", {})[0]
        waiting.close()
    finally:
        fault_points.arm("")
        tools.close()

    assert [record["message"] for record in logged(workspace)] == [
        "recovery: a waits: policy_violation/read_only_filesystem/EROFS"
    ]


def test_a_content_that_was_lost_and_taken_again_is_logged(workspace: Path) -> None:
    tools = Tools(workspace)
    sha256 = tools.use("safe_write", {"path": "a", "content": SECRET * 10_000})[1]["sha256"]
    os.unlink(os.path.join(tools.service.folder, "blobs", sha256))
    assert tools.use("safe_write", {"path": "a", "content": "x", "mode": "overwrite"})[0]
    tools.close()

    (record,) = logged(workspace)
    assert (record["level"], sha256[:12] in record["message"]) == ("warning", True)
