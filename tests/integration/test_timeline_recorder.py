"""What the recorder writes down of real shell commands, in a real workspace with a real journal."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.processes import wait_for
from perdure.cli.disk_usage import store_usages
from perdure.platform.fault_points import arm
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import LockTimeout
from perdure.storage.journal import Filter, Row
from perdure.storage.timeline import ChangeFilter
from perdure.storage.workspace_store import find
from perdure.worker.compose import Settings, open_write
from perdure.workspace.retention import RetentionTask
from perdure.workspace.retention_limits import Keep
from perdure.workspace.timeline import observation, recorder
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.verify import verify
from perdure.workspace.workspace import Workspace

EMPTY = sha256(b"").digest()


class Stage:
    """A workspace with its recorder, and a client that runs shell commands between its hooks."""

    def __init__(self, root: Path, settings: TimelineSettings | None = None) -> None:
        self.root = root
        self.workspace: Workspace = open_write(Settings(workspaces=(str(root),), surfaces=("write",)))
        self.recorder = Recorder(self.workspace, settings)
        self.number = 0

    def event(self, kind: str, **more: Any) -> HookEvent:
        facts = {"client": "claude-code", "session": "s1", "cwd": str(self.root), **more}
        return HookEvent(kind=kind, **facts)  # type: ignore[arg-type]

    def tell(self, kind: str, **more: Any) -> None:
        self.recorder.handle(self.event(kind, **more))

    def begin(self, command: str, **more: Any) -> dict[str, Any]:
        self.number += 1
        facts = {"tool": "Bash", "call_id": f"c{self.number}", "command": command, **more}
        self.tell("before_tool", **facts)
        return facts

    def run(self, command: str, **more: Any) -> list[Row]:
        """Between the hooks of one call. Returns the rows that it left, the oldest first."""
        seq = self.newest()
        facts = self.begin(command, **more)
        done = subprocess.run(["sh", "-c", command], cwd=self.root, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        self.tell("after_tool", **facts)
        return self.rows(seq)

    def newest(self) -> int:
        rows = self.workspace.journal.rows(Filter(), 1)
        return rows[0].seq if rows else 0

    def rows(self, after: int = 0) -> list[Row]:
        return [row for row in reversed(self.workspace.journal.rows(Filter(), 100_000)) if row.seq > after]

    def content(self, sha: bytes | None) -> bytes | None:
        return self.workspace.store.load(sha.hex()) if sha is not None else None

    def not_covered(self) -> dict[str, str]:
        return {place.path: place.reason for place in self.workspace.journal.not_covered()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("one\ntwo\nthree\n")
    (root / "src" / "lib.py").write_text("lib\n")
    (root / "read.me").write_text("hello\n")
    return root


@pytest.fixture
def stage(root: Path) -> Iterator[Stage]:
    made = Stage(root)
    made.tell("session_start")
    yield made
    made.workspace.close()


def shape(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.mode, row.path) for row in rows]


def test_the_first_observation_keeps_everything_and_records_nothing(stage: Stage) -> None:
    assert stage.rows() == []
    tracked = {file.path: file for file in stage.workspace.journal.tracked_files()}
    assert sorted(tracked) == ["read.me", "src", "src/app.py", "src/lib.py"]
    assert stage.content(tracked["read.me"].sha) == b"hello\n"


def test_an_edit_in_place_is_one_change_with_its_call(stage: Stage) -> None:
    stage.tell("prompt")
    (row,) = stage.run("sed -i s/two/TWO/ src/app.py", agent="a1")
    assert (row.mode, row.path, row.op) == ("overwrite", "src/app.py", "native")
    assert (row.client, row.session) == ("claude-code", "s1")
    assert stage.content(row.old_sha) == b"one\ntwo\nthree\n"
    assert stage.content(row.new_sha) == b"one\nTWO\nthree\n"
    assert row.detail["call"] == {
        "tool": "Bash",
        "call_id": "c1",
        "agent": "a1",
        "turn": 1,
        "command": "sed -i s/two/TWO/ src/app.py",
    }
    assert (row.detail["added"], row.detail["removed"]) == (1, 1)
    (change,) = stage.workspace.journal.changes(ChangeFilter(agent="a1", turn=1), 10)
    assert change.id == row.seq
    assert change.call is not None
    assert change.call.status == "done"


def test_rows_are_settled_as_they_are_written(stage: Stage) -> None:
    stage.run("echo more >> read.me")
    assert stage.workspace.journal.intents() == []


def test_a_call_that_changed_nothing_leaves_nothing(stage: Stage) -> None:
    assert stage.run("true") == []
    assert stage.workspace.journal.open_calls() == []
    assert stage.workspace.journal.ended_calls(10) == []


def test_a_rename_is_found_by_content(stage: Stage) -> None:
    rows = stage.run("mv src/app.py src/main.py")
    assert shape(rows) == [("move", "src/main.py"), ("move", "src/app.py")]
    assert rows[0].detail["moved_from"] == "src/app.py"
    assert rows[1].detail["moved_to"] == "src/main.py"
    assert rows[0].txn == rows[1].txn


def test_a_renamed_folder(stage: Stage) -> None:
    rows = stage.run("mv src lib")
    assert shape(rows) == [
        ("create", "lib"),
        ("move", "lib/app.py"),
        ("move", "src/app.py"),
        ("move", "lib/lib.py"),
        ("move", "src/lib.py"),
        ("delete", "src"),
    ]


def test_a_recursive_removal_lists_children_before_their_folder(stage: Stage) -> None:
    rows = stage.run("rm -rf src")
    assert shape(rows) == [("delete", "src/lib.py"), ("delete", "src/app.py"), ("delete", "src")]
    assert rows[0].detail["file_mode"] == 0o644
    assert rows[2].detail["kind"] == "directory"
    assert (rows[2].old_sha, rows[2].new_sha) == (EMPTY, None)
    assert stage.content(rows[1].old_sha) == b"one\ntwo\nthree\n"


def test_modes_of_files_and_folders(stage: Stage) -> None:
    rows = stage.run("chmod 755 src/app.py && chmod 700 src")
    assert shape(rows) == [("overwrite", "src"), ("overwrite", "src/app.py")]
    assert (rows[1].detail["mode_before"], rows[1].detail["file_mode"]) == (0o644, 0o755)
    assert rows[1].old_sha == rows[1].new_sha
    assert rows[0].detail["kind"] == "directory"
    assert (rows[0].detail["mode_before"], rows[0].detail["file_mode"]) == (0o755, 0o700)


def test_a_link_is_recorded_by_its_target_and_never_followed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    rows = stage.run("ln -s ../outside out && ln -s nowhere broken")
    assert shape(rows) == [("create", "broken"), ("create", "out")]
    assert [row.detail["kind"] for row in rows] == ["link", "link"]
    assert stage.content(rows[1].new_sha) == b"../outside"
    (row,) = stage.run("ln -sfn elsewhere out")
    assert (stage.content(row.old_sha), stage.content(row.new_sha)) == (b"../outside", b"elsewhere")


def test_a_file_that_becomes_a_link_and_a_folder(stage: Stage) -> None:
    (row,) = stage.run("rm read.me && ln -s src/app.py read.me")
    assert (row.detail["kind"], row.detail["kind_before"]) == ("link", "file")
    rows = stage.run("rm read.me && mkdir read.me && echo x > read.me/x")
    assert shape(rows) == [("overwrite", "read.me"), ("create", "read.me/x")]
    assert (rows[0].detail["kind"], rows[0].detail["kind_before"]) == ("directory", "link")
    rows = stage.run("rm -r read.me && echo y > read.me")
    assert shape(rows) == [("delete", "read.me/x"), ("overwrite", "read.me")]
    assert rows[1].detail["kind_before"] == "directory"


def test_empty_folders_and_truncation(stage: Stage) -> None:
    rows = stage.run("mkdir -p a/b && : > read.me")
    assert shape(rows) == [("create", "a"), ("create", "a/b"), ("overwrite", "read.me")]
    assert rows[2].new_sha == EMPTY
    assert rows[0].detail["file_mode"] == os.stat(stage.root / "a").st_mode & 0o7777


def test_names_with_newlines_and_other_letters(stage: Stage) -> None:
    rows = stage.run("printf x > 'a\nb' && printf y > 'größe 日本'")
    assert shape(rows) == [("create", "a\nb"), ("create", "größe 日本")]


def test_a_name_that_is_no_text_is_named_as_not_covered(stage: Stage) -> None:
    with open(os.path.join(os.fsencode(stage.root), b"caf\xe9"), "wb") as file:
        file.write(b"x")
    assert stage.run("true") == []
    assert [reason for path, reason in stage.not_covered().items() if path.startswith("caf")] == ["name"]


def test_special_files_are_named_and_never_opened(stage: Stage) -> None:
    rows = stage.run("mkfifo pipe && rm read.me && mkfifo read.me")
    assert shape(rows) == [("delete", "read.me")]
    assert stage.not_covered()["pipe"] == "special"


def test_binary_and_large_contents(stage: Stage) -> None:
    (row,) = stage.run("head -c 1000000 /dev/zero > zeros.bin")
    assert stage.content(row.new_sha) == bytes(1_000_000)
    (row,) = stage.run("rm zeros.bin")
    assert stage.content(row.old_sha) == bytes(1_000_000)


def test_touch_is_no_change(stage: Stage) -> None:
    assert stage.run("touch read.me && touch -d '2001-01-01' src/app.py") == []


def test_a_change_between_calls_is_of_another_program(stage: Stage) -> None:
    (stage.root / "read.me").write_text("edited by hand\n")
    (row,) = stage.run("true")
    assert (row.client, row.session) == ("another program", "")
    assert "call" not in row.detail


def test_a_change_after_the_end_of_a_call_that_names_the_file_is_late(stage: Stage) -> None:
    assert stage.run("(true) & : read.me") == []
    (stage.root / "read.me").write_text("late\n")
    (row,) = stage.run("true")
    assert row.client == "claude-code"
    (change,) = stage.workspace.journal.changes(ChangeFilter(), 1)
    assert change.call is not None
    assert (change.call.status, change.call.call_id) == ("late", "c1")


def test_two_overlapping_calls_are_told_apart_by_the_paths_that_they_name(stage: Stage) -> None:
    one = stage.begin("sed -i s/one/1/ src/app.py", agent="a1")
    two = stage.begin("sed -i s/hello/bye/ read.me", agent="a2")
    subprocess.run(["sh", "-c", one["command"]], cwd=stage.root, check=True)
    subprocess.run(["sh", "-c", two["command"]], cwd=stage.root, check=True)
    (stage.root / "third").write_text("whose?")
    stage.tell("after_tool", **two)
    stage.tell("after_tool", **one)
    by_path = {row.path: row for row in stage.rows()}
    assert by_path["src/app.py"].detail["call"]["call_id"] == "c1"
    assert "shared_with" not in by_path["src/app.py"].detail["call"]
    assert by_path["read.me"].detail["call"]["call_id"] == "c2"
    assert by_path["third"].detail["call"]["call_id"] == "c1"
    assert by_path["third"].detail["call"]["shared_with"] == ["c2"]
    assert by_path["third"].txn == by_path["src/app.py"].txn


@pytest.mark.parametrize("later", ["changed", "removed"])
def test_a_file_that_another_call_changes_while_this_one_ends_is_of_both(
    stage: Stage, tmp_path: Path, later: str
) -> None:
    """Left for the next observation, the first line would be of the second call alone."""
    first, second = stage.begin("make"), stage.begin("make")
    shared, pause = stage.root / "read.me", tmp_path / "pause"
    with shared.open("a") as file:
        file.write("by the first\n")
    arm(f"timeline.captured=pause:{pause}@1")
    try:
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(stage.tell, "after_tool", **first)
            assert wait_for(pause.exists, 20)
            if later == "changed":
                shared.write_text(shared.read_text() + "by the second\n")
            else:
                shared.unlink()
            pause.unlink()
            ending.result()
    finally:
        arm("")
    [row] = stage.rows()
    assert row.detail["call"]["call_id"] == "c1"
    assert row.detail["call"]["shared_with"] == ["c2"]
    assert row.mode == ("overwrite" if later == "changed" else "delete")
    stage.tell("after_tool", **second)
    assert stage.rows() == [row]


def test_a_call_whose_end_never_came_is_unfinished(stage: Stage) -> None:
    stage.begin("sleep 100")
    (stage.root / "half").write_text("done")
    stage.tell("prompt")
    (row,) = stage.rows()
    assert row.detail["call"]["call_id"] == "c1"
    (change,) = stage.workspace.journal.changes(ChangeFilter(), 1)
    assert change.call is not None
    assert change.call.status == "unfinished"


def test_an_end_without_a_beginning_still_has_its_call(stage: Stage) -> None:
    (stage.root / "read.me").write_text("changed\n")
    stage.tell("after_tool", tool="Edit", call_id="c9", paths=("read.me",))
    (row,) = stage.rows()
    assert row.detail["call"] == {"tool": "Edit", "call_id": "c9"}


def test_a_reading_tool_costs_no_observation(stage: Stage) -> None:
    (stage.root / "read.me").write_text("changed\n")
    stage.tell("before_tool", tool="Read", call_id="c1", may_change_files=False)
    stage.tell("after_tool", tool="Read", call_id="c1", may_change_files=False)
    assert stage.rows() == []


def test_secrets_in_a_command_line_are_redacted(stage: Stage) -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    (row,) = stage.run(f"echo 'curl -H {token}' > read.me")
    assert token not in str(row.detail)
    assert "REDACTED" in row.detail["call"]["command"]
    (call,) = stage.workspace.journal.ended_calls(1)
    assert token not in str(call)


def test_an_event_with_broken_text_is_recorded_nevertheless(stage: Stage) -> None:
    broken = "\ud800" * 300
    facts = {"tool": broken, "call_id": broken, "agent": broken, "command": f"x {broken}", "paths": (broken,)}
    stage.tell("before_tool", **facts)
    (stage.root / "read.me").write_text("changed")
    stage.tell("after_tool", **facts)
    (row,) = stage.rows()
    assert row.detail["call"]["call_id"] == "?" * 200


def test_git_checkout_records_files_and_the_moved_head(root: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "one")
    first = git("rev-parse", "HEAD")
    git("checkout", "-qb", "other")
    (root / "src" / "app.py").write_text("other\n")
    (root / "new").write_text("new\n")
    git("add", ".")
    git("commit", "-qm", "two")
    second = git("rev-parse", "HEAD")
    stage = Stage(root)
    stage.tell("session_start")
    rows = stage.run("git checkout -q main")
    assert shape(rows) == [("overwrite", "src/app.py"), ("delete", "new")]
    assert (rows[0].detail["head"], rows[0].detail["head_after"]) == (second, first)
    assert stage.not_covered()[".git"] == "git"
    stage.workspace.close()


def test_coverage_of_a_project(root: Path) -> None:
    (root / ".gitignore").write_text("*.log\n.env\nsecret/\n/out\n")
    (root / "node_modules" / "x").mkdir(parents=True)
    (root / "node_modules" / "x" / "index.js").write_text("x")
    (root / ".env").write_text("KEY=1\n")
    (root / "small.log").write_text("x")
    (root / "big.log").write_bytes(bytes(100_000))
    (root / "secret").mkdir()
    (root / "secret" / "key").write_text("k")
    (root / "out").mkdir()
    for number in range(1100):
        (root / "out" / str(number)).write_text("")
    (root / "huge").write_bytes(bytes(3_000_000))
    stage = Stage(root, TimelineSettings(max_file_mb=2, ignore=("src/lib.py",)))
    stage.tell("session_start")
    tracked = {file.path for file in stage.workspace.journal.tracked_files()}
    assert {".env", "small.log", "secret", "secret/key", "src/app.py", ".gitignore"} <= tracked
    assert stage.not_covered() == {
        "node_modules": "dependencies",
        "big.log": "ignored",
        "out": "ignored",
        "huge": "too_large",
        "src/lib.py": "settings",
    }
    # What enters coverage may have been there all along: it gets no row that an undo could take for a creation.
    assert shape(stage.run("echo x > big.log; rm .env; echo y > new")) == [
        ("create", "new"),
        ("delete", ".env"),
    ]
    stage.workspace.close()


def test_keep_wins_over_everything_but_limits(root: Path) -> None:
    (root / "node_modules" / "mine").mkdir(parents=True)
    (root / "node_modules" / "mine" / "a.js").write_text("a")
    (root / "node_modules" / "other.js").write_text("a")
    stage = Stage(root, TimelineSettings(keep=("node_modules/mine/",)))
    stage.tell("session_start")
    tracked = {file.path for file in stage.workspace.journal.tracked_files()}
    assert "node_modules/mine/a.js" in tracked
    assert "node_modules/other.js" not in tracked
    stage.workspace.close()


def test_a_file_that_outgrows_the_limit_can_still_be_restored(root: Path) -> None:
    stage = Stage(root, TimelineSettings(max_file_mb=1))
    stage.tell("session_start")
    (row,) = stage.run("head -c 2000000 /dev/zero >> read.me")
    assert stage.content(row.old_sha) == b"hello\n"
    assert row.new_sha == sha256(b"hello\n" + bytes(2_000_000)).digest()
    assert stage.not_covered() == {"read.me": "too_large"}
    stage.workspace.close()


def test_a_large_file_that_changes_all_the_time_does_not_fill_the_disk(root: Path) -> None:
    (root / "base.db").write_bytes(os.urandom(1_500_000))
    stage = Stage(root, TimelineSettings(max_total_mb=2))
    stage.tell("session_start")
    covered = [stage.run(f"printf {number} >> base.db") for number in range(3)]
    assert [len(rows) for rows in covered] == [1, 1, 0]
    assert stage.not_covered() == {"base.db": "max_total"}
    (last,) = covered[1]
    old = stage.content(last.old_sha)
    assert old is not None
    assert old.endswith(b"0")
    stage.workspace.close()


def test_what_went_and_was_not_covered_is_said(root: Path) -> None:
    (root / "node_modules").mkdir()
    stage = Stage(root)
    stage.tell("session_start")
    (row,) = stage.run("rm -r node_modules read.me")
    assert row.detail["not_covered"] == ["node_modules"]
    stage.workspace.close()


def test_secret_files_are_skipped_where_the_settings_say_so(root: Path) -> None:
    (root / ".env").write_text("X=1\n")
    (root / "config").write_text("token = ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8\n")
    stage = Stage(root, TimelineSettings(secrets="skip"))
    stage.tell("session_start")
    assert stage.not_covered() == {".env": "secret", "config": "secret"}
    stage.workspace.close()


def test_copies_of_secrets_go_when_the_settings_change(root: Path) -> None:
    (root / ".env").write_text("X=1\n")
    stage = Stage(root)
    stage.tell("session_start")
    digest = sha256(b"X=1\n").digest()
    assert stage.workspace.journal.has_content(digest)
    stage.recorder = Recorder(stage.workspace, TimelineSettings(secrets="skip"))
    stage.tell("prompt")
    assert not stage.workspace.journal.has_content(digest)
    assert stage.rows() == []
    stage.workspace.close()


def test_what_does_not_fit_is_named(root: Path) -> None:
    for number in range(5):
        (root / f"f{number}").write_bytes(bytes(300_000))
    stage = Stage(root, TimelineSettings(max_total_mb=1))
    stage.tell("session_start")
    assert sorted(stage.not_covered().values()) == ["max_total"] * 2
    stage.workspace.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_a_file_that_loses_its_permissions_keeps_its_history(stage: Stage) -> None:
    (row,) = stage.run("chmod 0 read.me")
    assert (row.detail["file_mode"], row.old_sha) == (0, row.new_sha)
    assert stage.not_covered() == {"read.me": "unreadable"}


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_what_cannot_be_read_is_named(root: Path) -> None:
    (root / "closed").mkdir()
    (root / "closed" / "x").write_text("x")
    (root / "private").write_text("x")
    os.chmod(root / "private", 0)
    os.chmod(root / "closed", 0)
    stage = Stage(root)
    stage.tell("session_start")
    assert stage.not_covered() == {"closed": "unreadable", "private": "unreadable"}
    os.chmod(root / "closed", 0o700)
    stage.workspace.close()


@pytest.mark.parametrize("point", ["timeline.read", "timeline.planned", "timeline.row", "timeline.commit"])
def test_an_observation_that_fails_leaves_its_changes_for_the_next(stage: Stage, point: str) -> None:
    facts = stage.begin("sed -i s/one/1/ src/app.py")
    (stage.root / "src" / "app.py").write_text("1\n")
    (stage.root / "new").write_text("new")
    arm(f"{point}=enospc@1")
    try:
        with pytest.raises((ToolError, OSError)):
            stage.tell("after_tool", **facts)
    finally:
        arm("")
    assert stage.rows() == []
    stage.tell("after_tool", **facts)
    assert shape(stage.rows()) == [("create", "new"), ("overwrite", "src/app.py")]
    assert stage.workspace.journal.open_calls() == []


def test_an_observation_that_waits_too_long_for_another_leaves_its_changes_for_the_next(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = stage.begin("echo 1 > new")
    (stage.root / "new").write_text("1\n")
    monkeypatch.setattr(recorder, "LOCK_S", 0.05)
    with open(os.path.join(stage.workspace.folder, "observation.lock")) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LockTimeout):
            stage.tell("after_tool", **facts)
    assert stage.rows() == []
    stage.tell("after_tool", **facts)
    assert shape(stage.rows()) == [("create", "new")]


def test_disabled_it_does_nothing(root: Path) -> None:
    stage = Stage(root, TimelineSettings(enabled=False))
    stage.tell("session_start")
    stage.recorder.observe()
    assert stage.workspace.journal.tracked_files() == []
    stage.workspace.close()


def test_what_is_recorded_has_not_drifted_and_nothing_is_damaged(stage: Stage) -> None:
    stage.run("ln -s nowhere broken; mkdir empty; printf x > 'a\nb'; rm src/lib.py; chmod 600 read.me")
    assert list(verify(stage.workspace)) == []
    (stage.root / "broken").unlink()
    (stage.root / "broken").write_text("file")
    (stage.root / "empty").rmdir()
    assert sorted(problem.detail.rpartition(" since")[0] for problem in verify(stage.workspace)) == [
        "broken was changed",
        "empty is gone",
    ]


def test_retention_keeps_what_tracked_files_need_and_does_not_count_it(root: Path) -> None:
    (root / "big").write_bytes(os.urandom(500_000))
    stage = Stage(root)
    stage.tell("session_start")
    (row,) = stage.run("echo changed > read.me")
    keep = Keep(days=1000, megabytes=0.1)
    task = RetentionTask(stage.workspace.committer, stage.workspace.journal, stage.workspace.blobs, keep)
    task.once(time.time() + 7200)
    tracked = {file.path: file for file in stage.workspace.journal.tracked_files()}
    assert stage.content(tracked["big"].sha) == (root / "big").read_bytes()
    assert stage.content(row.old_sha) == b"hello\n"
    task.close()
    stage.workspace.close()


def test_du_shows_the_covered_files(root: Path) -> None:
    stage = Stage(root)
    stage.tell("session_start")
    folder = stage.workspace.folder
    stage.workspace.close()
    (usage,) = [one for one in store_usages(find(str(root))) if one.store == folder]
    assert usage.tracked == 3
    assert usage.tracked_bytes == len("one\ntwo\nthree\nlib\nhello\n")


def test_what_git_has_is_copied_when_it_changes(root: Path) -> None:
    (root / "same").write_text("hello\n")
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "1"],
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    (root / "src" / "lib.py").write_text("not clean\n")
    (root / "untracked").write_text("untracked\n")
    stage = Stage(root, TimelineSettings(capture="git"))
    stage.tell("session_start")
    journal = stage.workspace.journal
    kept = {
        file.path: journal.has_content(file.sha) for file in journal.tracked_files() if file.sha is not None
    }
    assert kept == {
        "read.me": False,
        "same": False,
        "src/app.py": False,
        "src/lib.py": True,
        "untracked": True,
    }
    rows = stage.run("sed -i s/one/1/ src/app.py; rm read.me src/lib.py; mv untracked elsewhere")
    assert {row.path: stage.content(row.old_sha) for row in rows if row.old_sha is not None} == {
        "src/app.py": b"one\ntwo\nthree\n",
        "read.me": b"hello\n",
        "src/lib.py": b"not clean\n",
        "untracked": b"untracked\n",
    }
    assert (rows[0].detail["added"], rows[0].detail["removed"]) == (1, 3)
    assert list(verify(stage.workspace)) == []
    stage.workspace.close()


@pytest.mark.thorough
@pytest.mark.parametrize("agents", [2, 4])
def test_agents_side_by_side_lose_no_change_and_get_none_of_another(root: Path, agents: int) -> None:
    stages = [Stage(root) for _ in range(agents)]
    for number in range(agents):
        (root / f"own-{number}").mkdir()
        (root / f"own-{number}" / "f").write_text("")
    (root / "common").write_text("")
    stages[0].tell("session_start")
    rounds = 20

    def work(number: int) -> None:
        for turn in range(rounds):
            command = f"echo {turn} >> own-{number}/f; echo {number} >> common"
            stages[number].run(command, agent=f"a{number}", call_id=f"{number}-{turn}")

    with ThreadPoolExecutor(agents) as pool:
        for done in [pool.submit(work, number) for number in range(agents)]:
            done.result()
    rows = stages[0].rows()
    calls = {row.txn: row.detail["call"] for row in reversed(rows) if "call" in row.detail}
    for number in range(agents):
        own = [row for row in rows if row.path == f"own-{number}/f"]
        assert len(own) == rounds
        assert {calls[row.txn]["agent"] for row in own} == {f"a{number}"}
    common = [row for row in rows if row.path == "common"]
    assert common[-1].new_sha == sha256((root / "common").read_bytes()).digest()
    assert all(row.old_sha == before.new_sha for before, row in pairwise(common))
    assert {row.client for row in rows} == {"claude-code"}
    for stage in stages:
        stage.workspace.close()


def test_a_first_capture_that_runs_out_of_time_goes_on_and_invents_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "f").write_text("f")
    stage = Stage(root)
    monkeypatch.setattr(observation, "CAPTURE_S", -1.0)
    stage.tell("session_start")
    assert stage.not_covered() == {"read.me": "not_yet", "src": "not_yet", "deep": "not_yet"}
    # Nothing is known of what these were, so that an undo could only do harm.
    assert shape(stage.run("rm read.me; echo x > deep/er/f; echo y > deep/new; echo z > new")) == [
        ("create", "new")
    ]
    monkeypatch.undo()
    monkeypatch.setenv("PERDURE_HOME", str(root.parent / "home"))
    stage.recorder.observe()
    assert stage.not_covered() == {}
    tracked = {file.path: file for file in stage.workspace.journal.tracked_files()}
    assert stage.content(tracked["deep/er/f"].sha) == b"x\n"
    assert shape(stage.run("rm -r deep src")) == [
        ("delete", "src/lib.py"),
        ("delete", "src/app.py"),
        ("delete", "src"),
        ("delete", "deep/new"),
        ("delete", "deep/er/f"),
        ("delete", "deep/er"),
        ("delete", "deep"),
    ]
    stage.workspace.close()


def test_a_workspace_that_was_empty_at_first_has_creations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    stage = Stage(tmp_path / "work")
    stage.tell("session_start")
    assert shape(stage.run("echo x > f")) == [("create", "f")]
    stage.workspace.close()


def test_turns_and_agents(stage: Stage) -> None:
    stage.tell("prompt")
    stage.run("echo 1 > a")
    stage.tell("prompt")
    stage.run("echo 2 > b", agent="helper")
    stage.tell("prompt", session="s2")
    stage.run("echo 3 > c", session="s2")
    found = [
        (change.session, change.call.turn, change.call.agent)
        for change in reversed(stage.workspace.journal.changes(ChangeFilter(), 10))
        if change.call is not None
    ]
    assert found == [("s1", 1, None), ("s1", 2, "helper"), ("s2", 1, None)]


def test_the_stop_of_an_agent_ends_its_calls_alone(stage: Stage) -> None:
    stage.begin("touch a", agent="a1", call_id="one")
    stage.begin("touch b", agent="a2", call_id="two")
    stage.tell("agent_stop", agent="a1")
    assert [call.call_id for call in stage.workspace.journal.open_calls()] == ["two"]
    stage.tell("session_end")
    assert stage.workspace.journal.open_calls() == []


def test_a_call_of_yesterday_is_not_open_any_more(root: Path) -> None:
    stage = Stage(root)
    stage.tell("session_start")
    stage.begin("make src")
    stage.recorder = Recorder(stage.workspace, clock=lambda: time.time() + 2 * 86_400)
    (root / "read.me").write_text("changed")
    stage.recorder.observe()
    assert stage.workspace.journal.open_calls() == []
    stage.workspace.close()


def test_a_failed_call_is_recorded_as_any_other(stage: Stage) -> None:
    facts = stage.begin("echo x > read.me; false")
    subprocess.run(["sh", "-c", facts["command"]], cwd=stage.root, check=False)
    stage.tell("failed_tool", **facts)
    (row,) = stage.rows()
    assert row.detail["call"]["call_id"] == "c1"
