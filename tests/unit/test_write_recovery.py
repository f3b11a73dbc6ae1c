"""What a fresh process makes of a workspace that was left in the middle, by a kill or by a power cut.

A cut is made by hand: the files are put as it can leave them, and the machine has another boot id.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compiled_rules import put_compiled_rules
from harness.power.driver import Refused, named, run, write_surface
from harness.store_location import store_of
from perdure.platform import fault_points
from perdure.storage.files import pending
from perdure.storage.journal import Filter
from perdure.storage.sqlite import journal as sqlite_journal
from perdure.surfaces.write.surface import WriteSurface
from perdure.workspace import sync_pass

# Forks a process for each line that it reads: a fresh interpreter would spend most of its time on imports. Nothing is
# settled before such a process ends, and it ends as a killed process does.
_FORKS = """
import os, sys
import msgspec
from harness.power.driver import named, run, write_surface
from perdure.platform import fault_points
from perdure.storage.sqlite import journal, store_setup
from perdure.surfaces.write import surface
from perdure.workspace import settler

settler.SETTLE_AFTER_S = 3600
for line in sys.stdin.buffer:
    home, workspace, calls, fault, fault_of_opening = msgspec.json.decode(line)
    if (child := os.fork()) == 0:
        os.environ["PERDURE_HOME"] = home
        fault_points.arm(fault_of_opening)
        opened = write_surface(workspace, "journal")
        if fault_of_opening:
            opened.service.committer._retry_at = None  # another try is not due yet
        fault_points.arm(fault)
        tools = named(opened)
        for name, arguments in calls:
            run(tools, name, arguments, "a session", None)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Calls = list[tuple[str, dict[str, Any]]]
FIRST, SECOND, THIRD = "first\n" * 1000, "second\n" * 1000, "third\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    put_compiled_rules(tmp_path / "home")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@cache
def _forks() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FORKS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    _forks().communicate(timeout=60)


def start(workspace: Path, calls: Calls, fault: str = "", fault_of_opening: str = "") -> None:
    """Make these calls in a process of their own."""
    work = (str(workspace.parent / "home"), str(workspace), calls, fault, fault_of_opening)
    pipe = _forks().stdin
    assert pipe is not None
    pipe.write(msgspec.json.encode(work).decode() + "\n")
    pipe.flush()


def wait() -> int:
    """The exit code of the process that was started."""
    pipe = _forks().stdout
    assert pipe is not None
    return int(pipe.readline())


def left_after(workspace: Path, calls: Calls, fault: str = "", fault_of_opening: str = "") -> None:
    start(workspace, calls, fault, fault_of_opening)
    assert wait() == (-9 if fault else 0)


def edited_meanwhile(workspace: Path, calls: Calls, fault: str) -> None:
    """Another program rewrites `a` between the decision and the landing; then the process is killed."""
    paused = workspace.parent / "paused"
    start(workspace, calls, f"commit.decided=pause:{paused};{fault}")
    while not paused.exists():
        time.sleep(0.001)
    (workspace / "a").write_text("theirs\n")
    paused.unlink()
    assert wait() == -9


def changes_of(path: str, workspace: Path) -> int:
    surface = write_surface(str(workspace), "journal")
    assert isinstance(surface, WriteSurface)
    try:
        return len(surface.service.journal.rows(Filter(path=path), 100))
    finally:
        surface.close()


def reopened(workspace: Path) -> list[str]:
    """Recover; the ids of what was kept as drafts."""
    surface = write_surface(str(workspace), "journal")
    assert isinstance(surface, WriteSurface)
    try:
        assert surface.service.journal.intents() == []
        kept = [surface.service.journal.draft(f"d_{sha[:24]}") for sha in _hashes()]
        return [draft.id for draft in kept if draft is not None]
    finally:
        surface.close()


def _hashes() -> list[str]:
    return [hashlib.sha256(text.encode()).hexdigest() for text in (FIRST, SECOND, THIRD)]


def other_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_journal, "boot_id", lambda: "another boot")


def overwrites(*contents: str) -> Calls:
    return [("safe_write", {"path": "a", "content": text, "mode": "overwrite"}) for text in contents]


@pytest.mark.parametrize(
    "found",
    [None, FIRST, SECOND, FIRST[:4096], SECOND[:-3], "", "\0" * 4096 + FIRST[4096:]],
    ids=["none", "first", "second", "first cut short", "second cut short", "empty", "first with zeros"],
)
def test_changes_that_a_power_cut_took_back_are_made_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    left_after(workspace, overwrites(FIRST, SECOND, THIRD))
    (workspace / "a").unlink()
    if found is not None:
        (workspace / "a").write_text(found)

    other_boot(monkeypatch)

    assert reopened(workspace) == []
    assert (workspace / "a").read_text() == THIRD


@pytest.mark.parametrize("torn", ["", FIRST[:4096], "\0" * len(FIRST)], ids=["empty", "cut short", "zeros"])
def test_a_deletion_is_made_again_where_a_cut_left_the_file_torn(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, torn: str
) -> None:
    left_after(workspace, [*overwrites(FIRST), ("transaction", {"ops": [{"op": "delete", "path": "a"}]})])
    (workspace / "a").write_text(torn)

    other_boot(monkeypatch)

    reopened(workspace)
    assert not (workspace / "a").exists()


def test_what_another_program_wrote_stays_even_after_a_power_cut(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_after(workspace, overwrites(FIRST, THIRD))
    (workspace / "a").write_text("theirs\n")

    other_boot(monkeypatch)

    assert len(reopened(workspace)) == 1
    assert (workspace / "a").read_text() == "theirs\n"


def test_what_another_program_made_of_a_change_that_had_landed_stays_and_so_does_the_change(
    workspace: Path,
) -> None:
    left_after(workspace, overwrites(FIRST, SECOND, THIRD))
    (workspace / "a").write_text("theirs\n")

    assert reopened(workspace) == []
    assert (workspace / "a").read_text() == "theirs\n"
    assert changes_of("a", workspace) == 3


@pytest.mark.parametrize("found", [FIRST, SECOND, THIRD[:3], ""], ids=["first", "second", "cut", "empty"])
def test_where_a_change_that_had_landed_is_gone_without_a_restart_it_is_kept_as_a_draft(
    workspace: Path, found: str
) -> None:
    """Another program may have put the old content back, or a disk that went away lost what was not synced."""
    left_after(workspace, overwrites(FIRST, SECOND, THIRD))
    (workspace / "a").write_text(found)

    assert reopened(workspace) == [f"d_{hashlib.sha256(THIRD.encode()).hexdigest()[:24]}"]
    assert (workspace / "a").read_text() == found
    assert changes_of("a", workspace) == 3


def test_an_edit_that_came_before_the_change_stays_and_the_change_is_kept_as_a_draft(workspace: Path) -> None:
    left_after(workspace, overwrites(FIRST))
    left_after(workspace, overwrites(SECOND), fault="commit.decided=kill")
    (workspace / "a").write_text("theirs\n")

    assert len(reopened(workspace)) == 1
    assert (workspace / "a").read_text() == "theirs\n"
    assert changes_of("a", workspace) == 1


def test_who_lost_a_change_to_an_edit_does_not_overwrite_it_unseen(workspace: Path) -> None:
    """All it ever did with the file came to nothing; it cannot know, since it was never answered."""
    (workspace / "a").write_text("before\n")
    left_after(workspace, overwrites(SECOND), fault="commit.decided=kill")
    (workspace / "a").write_text("theirs\n")
    surface = write_surface(str(workspace), "journal")
    try:
        for name, arguments in overwrites(SECOND):
            with pytest.raises(Refused, match="changed_since_seen"):
                run(named(surface), name, arguments, "a session", None)
            run(named(surface), name, arguments, "another session", None)
    finally:
        surface.close()
    assert (workspace / "a").read_text() == SECOND


_BOTH: Calls = [
    (
        "transaction",
        {
            "ops": [
                {"op": "write", "path": "b", "content": "beside\n"},
                {"op": "edit", "path": "a", "edits": [{"old": "third", "new": "fourth"}]},
            ]
        },
    )
]


@pytest.mark.parametrize(
    "fault", ["write.exchanged=kill", "write.before_swap_back=kill", "commit.landed=kill"]
)
def test_a_transaction_that_met_an_edit_is_none_whenever_it_is_killed(workspace: Path, fault: str) -> None:
    left_after(workspace, overwrites(THIRD))

    edited_meanwhile(workspace, _BOTH, fault)

    reopened(workspace)
    assert (workspace / "a").read_text() == "theirs\n"
    assert not (workspace / "b").exists()
    assert changes_of("b", workspace) == 0
    assert [name for name in os.listdir(workspace) if name.startswith(".perdure~")] == []


@pytest.mark.parametrize(
    "fault", ["write.exchanged=kill", "write.before_swap_back=kill", "commit.landed=kill"]
)
def test_an_edit_that_was_put_aside_when_the_process_died_is_put_back(workspace: Path, fault: str) -> None:
    left_after(workspace, overwrites(THIRD))

    edited_meanwhile(workspace, overwrites(SECOND), fault)

    assert len(reopened(workspace)) == 1
    assert (workspace / "a").read_text() == "theirs\n"
    assert changes_of("a", workspace) == 1


def test_a_process_that_runs_already_settles_what_another_left_before_it_writes(workspace: Path) -> None:
    surface = write_surface(str(workspace), "journal")
    tools = named(surface)
    run(tools, "safe_write", {"path": "a", "content": "one\n"}, "here", None)
    append = {"path": "a", "content": "two\n", "mode": "append"}
    left_after(workspace, [("safe_write", append)], fault="commit.decided=kill")

    run(tools, "safe_write", {**append, "content": "three\n"}, "elsewhere", None)

    surface.close()
    assert (workspace / "a").read_text() == "one\ntwo\nthree\n"


def test_a_transaction_that_changes_a_file_twice_is_completed_whole(workspace: Path) -> None:
    left_after(workspace, overwrites(FIRST))
    operations = [
        {"op": "write", "path": "a", "content": "one\n", "mode": "overwrite"},
        {"op": "write", "path": "b", "content": "beside\n"},
        {"op": "edit", "path": "a", "edits": [{"old": "one", "new": "two"}]},
    ]
    left_after(workspace, [("transaction", {"ops": operations})], fault="commit.decided=kill")

    reopened(workspace)
    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("two\n", "beside\n")


def test_the_names_that_lead_to_the_journal_are_synced_before_its_first_row(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    reopened(workspace)
    folder = store_of(workspace, workspace.parent / "home")
    assert {str(folder), str(folder.parent), str(folder.parent.parent)} <= set(synced)


def test_what_is_taken_back_is_as_it_was_to_the_mode(workspace: Path) -> None:
    """A move brings its file's mode along; where the transaction is taken back, the mode it replaced comes back."""
    for name, mode in (("b", 0o644), ("c", 0o600)):
        (workspace / name).write_text(name)
        (workspace / name).chmod(mode)
    ops = [
        {"op": "delete", "path": "b"},
        {"op": "move", "path": "c", "to": "b"},
        {"op": "write", "path": "d", "content": "d\n"},
    ]
    fault_points.arm("write.before_create=enospc")
    try:
        surface = write_surface(str(workspace), "journal")
        with pytest.raises(Refused, match="quota_exceeded"):
            run(named(surface), "transaction", {"ops": ops}, "here", None)
        surface.close()
    finally:
        fault_points.arm("")
    assert [(name, (workspace / name).read_text()) for name in ("b", "c")] == [("b", "b"), ("c", "c")]
    assert [(workspace / name).stat().st_mode & 0o777 for name in ("b", "c")] == [0o644, 0o600]
    assert not (workspace / "d").exists()


_ONTO_B: Calls = [
    (
        "transaction",
        {
            "ops": [
                {"op": "delete", "path": "b"},
                {"op": "move", "path": "c", "to": "b"},
                {"op": "edit", "path": "a", "edits": [{"old": "third", "new": "fourth"}]},
            ]
        },
    )
]


@pytest.mark.parametrize("fault", ["write.exchanged=kill", "commit.landed=kill"])
def test_what_a_recovery_takes_back_is_as_it_was_to_the_mode(workspace: Path, fault: str) -> None:
    """A move brought its file's mode along, and the process was killed with the transaction half-done."""
    left_after(workspace, overwrites(THIRD))
    for name, mode in (("b", 0o750), ("c", 0o600)):
        (workspace / name).write_text(name)
        (workspace / name).chmod(mode)

    edited_meanwhile(workspace, _ONTO_B, fault)

    reopened(workspace)
    assert (workspace / "a").read_text() == "theirs\n"
    assert [(workspace / name).read_text() for name in ("b", "c")] == ["b", "c"]
    assert [(workspace / name).stat().st_mode & 0o777 for name in ("b", "c")] == [0o750, 0o600]


_EXECUTABLE: Calls = [
    (
        "transaction",
        {
            "ops": [
                {
                    "op": "patch",
                    "path": "a",
                    "patch": "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
                }
            ]
        },
    )
]


def test_a_mode_that_was_decided_and_did_not_land_is_set_by_recovery(workspace: Path) -> None:
    (workspace / "a").write_text("echo\n")
    (workspace / "a").chmod(0o640)

    left_after(workspace, _EXECUTABLE, "commit.decided=kill")
    assert (workspace / "a").stat().st_mode & 0o777 == 0o640

    reopened(workspace)
    assert (workspace / "a").stat().st_mode & 0o777 == 0o750
    assert (workspace / "a").read_text() == "echo\n"


def test_a_mode_that_a_power_cut_took_back_is_set_again_under_a_later_change(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("echo\n")
    (workspace / "a").chmod(0o640)
    left_after(workspace, [*_EXECUTABLE, *overwrites(FIRST)])
    (workspace / "a").write_text("echo\n")
    (workspace / "a").chmod(0o640)

    other_boot(monkeypatch)

    reopened(workspace)
    assert ((workspace / "a").read_text(), (workspace / "a").stat().st_mode & 0o777) == (FIRST, 0o750)


# --- files at which a recovery fails -----------------------------------------------------------------------------


_BEFORE: Calls = [("safe_write", {"path": path, "content": "before\n"}) for path in ("a", "b")]
_A_AND_B: Calls = [
    (
        "transaction",
        {
            "ops": [
                {"op": "write", "path": path, "content": "after\n", "mode": "overwrite"}
                for path in ("b", "a")
            ]
        },
    )
]
_MOMENTS = ["commit.decided=kill", "commit.file_landed=kill"]


@pytest.fixture
def broken() -> Iterator[None]:
    """Nothing can be written while a workspace is opened; `fault_points.arm("")` ends it."""
    yield
    fault_points.arm("")


@pytest.mark.parametrize("error", ["erofs", "eio", "enospc"])
@pytest.mark.parametrize("moment", _MOMENTS)
def test_a_file_at_which_recovery_fails_waits_alone_and_its_transaction_is_taken_back_later(
    workspace: Path, broken: None, moment: str, error: str
) -> None:
    left_after(workspace, _BEFORE)
    left_after(workspace, _A_AND_B, moment)
    (workspace / "a").write_text("theirs\n")
    landed = (workspace / "b").read_text()

    fault_points.arm(f"write.open_temp={error}")
    surface = write_surface(str(workspace), "journal")
    tools = named(surface)
    try:
        assert run(tools, "read", {"path": "a"}, "here", None)["content"] == "theirs\n"
        if landed == "after\n":
            with pytest.raises(Refused, match=r"b could not be restored after a crash"):
                run(tools, "read", {"path": "b"}, "here", None)
        fault_points.arm("")
        run(tools, "safe_write", {"path": "c", "content": "another\n"}, "here", None)
        assert run(tools, "read", {"path": "b"}, "here", None)["content"] == "before\n"
    finally:
        surface.close()
    assert (workspace / "a").read_text() == "theirs\n"
    assert changes_of("b", workspace) == 1
    reopened(workspace)


@pytest.mark.parametrize("error", ["erofs", "eio"])
def test_calls_that_name_a_file_that_waits_for_recovery_say_so_and_try_again(
    workspace: Path, broken: None, error: str
) -> None:
    left_after(workspace, overwrites(FIRST))
    left_after(workspace, overwrites(SECOND), "commit.decided=kill")

    fault_points.arm(f"write.open_temp={error}")
    surface = write_surface(str(workspace), "journal")
    tools = named(surface)
    try:
        for name, arguments in (("read", {"path": "a"}), *overwrites(THIRD)):
            with pytest.raises(Refused, match=r"a could not be restored after a crash"):
                run(tools, name, arguments, "here", None)
        fault_points.arm("")
        assert run(tools, "read", {"path": "a"}, "here", None)["content"] == SECOND
    finally:
        surface.close()


def test_what_waits_for_recovery_is_still_made_after_other_changes_and_another_kill(
    workspace: Path, broken: None
) -> None:
    """The watermark of what has landed must not pass a change that has not."""
    left_after(workspace, overwrites(FIRST))
    left_after(workspace, overwrites(SECOND), "commit.decided=kill")
    beside: Calls = [("safe_write", {"path": "b", "content": "beside\n"})]
    left_after(workspace, beside, fault_of_opening="write.open_temp=erofs")
    assert (workspace / "a").read_text() == FIRST

    reopened(workspace)

    assert (workspace / "a").read_text() == SECOND
    assert (workspace / "b").read_text() == "beside\n"


def test_changes_whose_newest_sync_failed_are_all_made_again_after_a_power_cut(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the pages: the disk can hold what was there before the first of them."""
    (workspace / "a").write_text("before\n")
    surface = write_surface(str(workspace), "journal")
    assert isinstance(surface, WriteSurface)
    tools = named(surface)
    run(tools, "read", {"path": "a"}, "here", None)
    for name, arguments in overwrites(FIRST, SECOND, THIRD):
        run(tools, name, arguments, "here", None)

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(sync_pass, "sync_file", failing)
        patched.setattr(pending, "sync_file", failing)
        surface.service.committer._settler.settle()
    surface.service.committer._settler.settle()
    surface.close()

    (workspace / "a").write_text("before\n")
    other_boot(monkeypatch)

    assert reopened(workspace) == []
    assert (workspace / "a").read_text() == THIRD
