"""A recorder with a file watcher sees what one that looks through the whole workspace sees."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.timeline.corpus import OPERATIONS, Operation, environ, make_workspace
from harness.timeline.shell import missing_programs
from perdure.storage.journal import Filter
from perdure.storage.timeline import TrackedFile
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.event import EventKind, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.timeline.watcher import FileWatcher
from perdure.workspace.workspace import Workspace

QUICK = ("sed -i", "mv a folder", "rm -rf a folder", "git switch", "a folder becomes a file", "a FIFO")


class Watched:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace: Workspace = open_write(Settings(workspaces=(str(root),), surfaces=("write",)))
        self.cookies = root.parent / "cookies"
        self.cookies.mkdir()
        self.recorder = Recorder(
            self.workspace, watch=lambda folders: FileWatcher(str(root), folders, str(self.cookies))
        )

    def tell(self, kind: EventKind, call_id: str, command: str) -> None:
        event = HookEvent(
            client="codex",
            kind=kind,
            session="s",
            cwd=str(self.root),
            tool="Bash",
            call_id=call_id,
            command=command,
        )
        self.recorder.handle(event)
        self.recorder.maintain()

    def run(self, command: str) -> None:
        call = str(self.head())
        self.tell("before_tool", call, command)
        subprocess.run(["sh", "-c", command], cwd=self.root, env=environ(), capture_output=True, timeout=60)
        self.tell("after_tool", call, command)

    def head(self) -> int:
        rows = self.workspace.journal.rows(Filter(), 1)
        return rows[0].seq if rows else 0

    def tracked(self) -> dict[str, TrackedFile]:
        return {file.path: file for file in self.workspace.journal.tracked_files()}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    make_workspace(tmp_path / "work")
    opened = Watched(tmp_path / "work")
    yield opened
    opened.recorder.close()
    opened.workspace.close()


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(
            operation, id=operation.name, marks=() if operation.name in QUICK else pytest.mark.thorough
        )
        for operation in OPERATIONS
    ],
)
def test_a_look_at_everything_finds_nothing_more(watched: Watched, operation: Operation) -> None:
    if missing := missing_programs(operation):
        pytest.skip(f"needs {', '.join(missing)}")
    watched.run("true")
    before = watched.head()
    watched.run(operation.command)
    if not operation.is_background:
        assert (watched.head() > before) is not operation.changes_nothing
    seen, head, left_out = watched.tracked(), watched.head(), watched.workspace.journal.not_covered()
    Recorder(watched.workspace).observe()
    if not operation.is_background:
        assert watched.head() == head
        assert watched.tracked().keys() == seen.keys()
        assert {path: file.sha for path, file in watched.tracked().items()} == {
            path: file.sha for path, file in seen.items()
        }
        assert watched.workspace.journal.not_covered() == left_out


def test_changes_are_found_after_another_process_has_observed(watched: Watched) -> None:
    watched.run("echo 1 > a")
    Recorder(watched.workspace).observe()
    (watched.root / "b").write_text("b")
    Recorder(watched.workspace).observe()
    head = watched.head()
    watched.run("echo 2 > a; echo 3 > c")
    assert {row.path for row in watched.workspace.journal.rows(Filter(), 10) if row.seq > head} == {"a", "c"}


def test_a_changed_gitignore_makes_it_look_at_everything(watched: Watched) -> None:
    watched.run("mkdir out && head -c 100000 /dev/zero > out/large")
    assert "out/large" in watched.tracked()
    watched.run("echo out/ >> .gitignore")
    Recorder(watched.workspace).observe()
    head = watched.head()
    watched.run("true")
    assert watched.head() == head


def test_events_taken_while_no_hook_comes_are_not_lost(watched: Watched) -> None:
    watched.run("true")
    head = watched.head()
    (watched.root / "README.md").write_text("changed by a person\n")
    watched.recorder.maintain()
    watched.recorder.maintain()
    watched.run("true")
    [row] = [row for row in watched.workspace.journal.rows(Filter(), 10) if row.seq > head]
    assert (row.path, row.client) == ("README.md", "another program")


@pytest.mark.parametrize("how", ["rm -rf notes && mkdir notes", "mv notes old && mkdir notes && rm -rf old"])
def test_a_folder_that_was_made_anew_is_watched_again(watched: Watched, how: str) -> None:
    watched.run("true")
    watched.run(how)
    head = watched.head()
    watched.run("echo new > notes/new.txt")
    assert [row.path for row in watched.workspace.journal.rows(Filter(), 10) if row.seq > head] == [
        "notes/new.txt"
    ]
