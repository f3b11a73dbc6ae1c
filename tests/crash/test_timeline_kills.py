"""A hook that is killed at any step of an observation: the next one finds the same changes, and records each once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.platform.fault_points import VARIABLE, names
from perdure.storage.journal import Filter, Row
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.verify import verify

pytestmark = pytest.mark.thorough

HOOK = """
import sys
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder
root, kind = sys.argv[1:]
workspace = open_write(Settings(workspaces=(root,), surfaces=("write",)))
event = HookEvent(client="claude-code", kind=kind, session="s", cwd=root, tool="Bash", call_id="c1", command="do it")
Recorder(workspace).handle(event)
workspace.close()
"""
POINTS = [name for name in names() if name.startswith("timeline.")]
ALWAYS = ("timeline.scan", "timeline.planned", "timeline.captured", "timeline.commit", "timeline.recorded")


def hook(root: Path, kind: str, fault: str = "") -> int:
    environ = {**os.environ, VARIABLE: fault}
    command = [sys.executable, "-c", HOOK, str(root), kind]
    return subprocess.run(command, env=environ, timeout=60, check=False).returncode


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "changed").write_text("old\n")
    (root / "gone").write_text("gone\n")
    (root / "large").write_bytes(bytes(200_000))
    return root


def change(root: Path) -> None:
    (root / "changed").write_text("new\n")
    (root / "gone").unlink()
    (root / "made").mkdir()
    (root / "made" / "large").write_bytes(b"x" * 200_000)


def judge(root: Path) -> list[Row]:
    """Every change is there once, can be taken back, and nothing is damaged."""
    workspace = open_write(Settings(workspaces=(str(root),), surfaces=("write",)))
    Recorder(workspace).observe()
    rows = list(reversed(workspace.journal.rows(Filter(), 100)))
    assert [(row.mode, row.path) for row in rows] == [
        ("create", "made"),
        ("create", "made/large"),
        ("overwrite", "changed"),
        ("delete", "gone"),
    ]
    olds = [workspace.store.load(row.old_sha.hex()) for row in rows if row.old_sha is not None]
    assert olds == [b"old\n", b"gone\n"]
    assert list(verify(workspace)) == []
    tracked = {file.path for file in workspace.journal.tracked_files()}
    assert tracked == {"changed", "large", "made", "made/large"}
    workspace.close()
    return rows


@pytest.mark.parametrize("point", POINTS)
def test_killed_after_a_call(root: Path, point: str) -> None:
    assert hook(root, "before_tool") == 0
    change(root)
    killed = hook(root, "after_tool", f"{point}=kill")
    assert killed == (0 if point == "timeline.capture" else -signal.SIGKILL)
    rows = judge(root)
    assert len({row.txn for row in rows}) == 1
    assert rows[0].detail["call"]["call_id"] == "c1"


@pytest.mark.parametrize("point", [*ALWAYS, "timeline.read", "timeline.capture"])
def test_killed_in_the_first_capture(root: Path, point: str) -> None:
    assert hook(root, "session_start", f"{point}=kill") == -signal.SIGKILL
    assert hook(root, "before_tool") == 0
    change(root)
    assert hook(root, "after_tool") == 0
    judge(root)


@pytest.mark.parametrize("error", ["enospc", "eio", "erofs"])
@pytest.mark.parametrize(
    "point", ["timeline.scan", "timeline.planned", "timeline.row", "timeline.commit", "blob.chunk"]
)
def test_an_error_on_the_way_leaves_everything_for_the_next_observation(
    root: Path, point: str, error: str
) -> None:
    assert hook(root, "before_tool") == 0
    change(root)
    assert hook(root, "after_tool", f"{point}={error}@1") == 1
    judge(root)
