"""Many writers on one workspace: of those who want the same one gets it, and nobody's content is lost unseen.

What holds against a program that takes no lock:

- One that writes beside the file and renames sees its content replaced only by a call that had read exactly that
  content, which the journal then keeps. Everything else is a conflict, and it finds its content at the name.
- One that writes into the file is waited for: a file that anybody has open for writing is not replaced. What it writes
  into ours, in the moment in which ours stands at the name before it is verified, becomes a draft that the conflict
  names; at the name stands what was there before.
- Not held: a system call `open` that has found the old file before it was replaced, and opens it for writing only
  after nobody else had it open. No program can see that; the time for it is a few microseconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.races import foreign_editor, write_racers
from harness.races.write_racers import Way
from harness.syscalls.traced_worker import Worker
from perdure.testing.raw_client import RawClient

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(("way", "rounds"), [("worker", 200), ("host", 25)])
def test_of_four_processes_one_wins_and_no_line_is_lost(tmp_path: Path, way: Way, rounds: int) -> None:
    tally = write_racers.race(tmp_path, way, rounds)
    assert tally.violations == []
    assert tally.calls == rounds * 4 * 4


def test_writers_who_look_first_and_write_then_lose_every_one_of_these_races(tmp_path: Path) -> None:
    violations = write_racers.race(tmp_path, "naive", 60).violations
    for race in ("new/", "append", "swapped", "edit"):
        assert any(one.startswith(race) for one in violations), f"{race} was never lost: it proves nothing"


@pytest.mark.parametrize("style", foreign_editor.STYLES)
def test_a_foreign_editor_never_loses_content_unseen(tmp_path: Path, style: foreign_editor.Style) -> None:
    outcome = foreign_editor.race(tmp_path, style, seconds=4)
    assert outcome.violations == []
    assert outcome.acknowledged > 0
    assert outcome.refused > 0
    assert outcome.displaced > 0, "the race was never met"


def test_twenty_parallel_edits_of_one_file_all_land(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"<{number}>\n" for number in range(20)))
    command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(tmp_path)]
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home")}
    with RawClient([*command, "--render", "json"], env=env) as client:
        client.initialize()
        sent = [
            client.start_call("edit", {"path": "a", "edits": [{"old": f"<{n}>", "new": f"[{n}]"}]})
            for n in range(20)
        ]
        for identity in sent:
            assert not client.wait(identity, 30)["result"].get("isError")
    assert (tmp_path / "a").read_text() == "".join(f"[{number}]\n" for number in range(20))


# --- moments that a race seldom meets --------------------------------------------------------------------------


def until(condition: Callable[[], bool]) -> None:
    """A file that comes or goes can only be looked for."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def paused(tmp_path: Path) -> Iterator[tuple[Worker, Path, Path]]:
    """A worker that waits before two files change places, and again when they have."""
    before, after = tmp_path / "before", tmp_path / "after"
    fault = f"write.before_exchange=pause:{before};write.exchanged=pause:{after}"
    worker = Worker(tmp_path, env={"PERDURE_FAULT": fault})
    yield worker, before, after
    for file in (before, after):
        file.unlink(missing_ok=True)
    worker.client.kill()


def test_who_finds_ours_at_the_name_and_writes_into_it_is_waited_for(
    paused: tuple[Worker, Path, Path],
) -> None:
    worker, before, after = paused
    file = worker.workspace / "f"
    file.write_text("one\n")
    call = worker.client.start_call("edit", {"path": "f", "edits": [{"old": "one", "new": "two"}]})
    until(before.exists)
    (worker.workspace / "beside").write_text("by another program\n")
    (worker.workspace / "beside").replace(file)
    before.unlink()
    until(after.exists)

    with file.open("r+b", buffering=0) as ours:
        assert ours.read() == b"two\n"
        after.unlink()
        until(lambda: file.read_text() != "two\n")
        ours.seek(0)
        ours.truncate()
        ours.write(b"written into it\n")

    told = worker.client.wait(call, 20)["result"]["structuredContent"]
    assert (told["error"], told["context"]["reason"]) == ("conflict", "changed_meanwhile")
    assert file.read_text() == "by another program\n"
    (draft,) = told["context"]["displaced"]
    done, told = worker.use("safe_write", {"path": "found again", "draft": draft})
    assert done, told
    assert (worker.workspace / "found again").read_bytes() == b"written into it\n"
    assert [path.name for path in worker.workspace.iterdir() if path.name.startswith(".perdure~")] == []
