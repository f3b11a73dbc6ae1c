"""A handoff whose listed files change places with links out of the workspace while it is read."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from write_tools import Tools

pytestmark = pytest.mark.thorough

READS = 400


def test_nothing_of_a_file_outside_is_told_while_links_change_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for root, text in ((inside / "d", "inside"), (outside, "outside")):
        root.mkdir(parents=True)
        (root / "f").write_text(text)
    (inside / "f").write_text("inside")
    (inside / "d_link").symlink_to(outside)
    (inside / "f_link").symlink_to(outside / "f")
    sha = hashlib.sha256(b"inside").hexdigest()
    tools = Tools(inside)
    envelope = {
        "task_id": "t", "status": "partial", "agent": "a", "summary": "s", "next_steps": [],
        "last_good_state": [{"path": path, "sha256": sha} for path in ("d/f", "f")],
    }  # fmt: skip
    assert tools.use("handoff_write", {"envelope": envelope})[0]
    swapper = subprocess.Popen(
        [sys.executable, "-m", "harness.races.swap_race", "--swap", str(inside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"swapping\n"
        reasons: set[str] = set()
        whole = 0
        for _ in range(READS):
            is_done, found = tools.use("handoff_read", {})
            assert is_done
            assert hashlib.sha256(b"outside").hexdigest() not in repr(found)
            reasons |= {one["reason"] for one in found["drift_warnings"]}
            whole += not found["drift_warnings"]
        assert swapper.poll() is None
    finally:
        swapper.kill()
        swapper.communicate()
        tools.close()
    # A link leads out, or the name was looked for while it was one: no hash in either case.
    assert reasons <= {"invalid_path"}
    assert 0 < whole < READS
