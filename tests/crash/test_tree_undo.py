"""An undo of links, directories and modes, killed at every fault point: the tree is the old one or the new one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from compiled_rules import put_compiled_rules
from perdure.storage.files.temp_names import PREFIX
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Durability, Settings, surfaces
from perdure.workspace.undo.changes import is_effective
from perdure.workspace.workspace import Workspace
from row_recorder import Entry, RowRecorder, look

# Forks a process for each line that it reads, as in the tests of recovery.
_FORKS = """
import os, sys
import msgspec
from harness.power.driver import named, run, write_surface
from perdure.platform import fault_points
from perdure.workspace import settler

settler.SETTLE_AFTER_S = 3600
for line in sys.stdin.buffer:
    home, workspace, durability, arguments, fault, fault_of_opening = msgspec.json.decode(line)
    if (child := os.fork()) == 0:
        os.environ["PERDURE_HOME"] = home
        fault_points.arm(fault_of_opening)
        opened = write_surface(workspace, durability)
        opened.service
        fault_points.arm(fault)
        if arguments is not None:
            run(named(opened), "undo", arguments, "a session", None)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _forks() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _FORKS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    if _forks.cache_info().currsize:
        process = _forks()
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        _forks.cache_clear()


class Tree:
    """A workspace in which one change of every kind is recorded, and undone and redone in processes of their own."""

    def __init__(self, base: Path, durability: Durability) -> None:
        self.root = base / "work"
        self._home = base / "home"
        self._durability = durability
        self.root.mkdir()
        self._plant()
        self.before = look(self.root)
        surface = self._surface()
        with RowRecorder(surface.service, self.root).change() as rows:
            self._change()
        self.after = look(self.root)
        self.change = rows[0]
        surface.close()

    def _plant(self) -> None:
        root = self.root
        for folder in ("gone/deep", "becomes-link", "becomes-file", "closed", "closed-and-gone", "moved"):
            (root / folder).mkdir(parents=True)
            (root / folder / "file").write_text(f"{folder}\n")
        (root / "empty").mkdir()
        (root / "link").symlink_to("moved/file")
        (root / "link-becomes-file").symlink_to("nowhere")
        (root / "link-becomes-folder").symlink_to("moved")
        (root / "file-becomes-folder").write_text("f\n")
        (root / "file-becomes-link").write_text("l\n")
        (root / "script").write_text("#!/bin/sh\n")
        (root / "script").chmod(0o755)
        (root / "closed").chmod(0o500)
        (root / "closed-and-gone").chmod(0o500)

    def _change(self) -> None:
        root = self.root
        shutil.rmtree(root / "gone")
        (root / "closed-and-gone").chmod(0o700)
        shutil.rmtree(root / "closed-and-gone")
        for name in ("becomes-link", "becomes-file"):
            shutil.rmtree(root / name)
        (root / "becomes-link").symlink_to("moved")
        (root / "becomes-file").write_text("now a file\n")
        (root / "moved").rename(root / "elsewhere")
        (root / "empty").rmdir()
        (root / "new/folder").mkdir(parents=True)
        for name in (
            "link",
            "link-becomes-file",
            "link-becomes-folder",
            "file-becomes-folder",
            "file-becomes-link",
        ):
            (root / name).unlink()
        (root / "link").symlink_to("elsewhere/file")
        (root / "link-becomes-file").write_text("now a file\n")
        for name in ("link-becomes-folder", "file-becomes-folder"):
            (root / name).mkdir()
            (root / name / "inside").write_text("i\n")
        (root / "file-becomes-link").symlink_to("elsewhere")
        (root / "script").chmod(0o644)
        (root / "closed").chmod(0o700)
        (root / "closed/file").unlink()
        (root / "elsewhere").chmod(0o555)

    def _surface(self) -> WriteSurface:
        settings = Settings(workspaces=(str(self.root),), surfaces=("write",), durability=self._durability)
        (surface,) = surfaces(settings)
        assert isinstance(surface, WriteSurface)
        return surface

    def run(self, *, fault: str = "", fault_of_opening: str = "", calls: bool = True) -> int:
        """Undo the change, or redo it where it is undone, in a process. Returns its exit code."""
        is_undone = look(self.root) == self.before
        arguments = {"redo": True, "session": "any"} if is_undone else {"change": str(self.change)}
        work = (
            str(self._home),
            str(self.root),
            self._durability,
            arguments if calls else None,
            fault,
            fault_of_opening,
        )
        pipes = _forks()
        assert pipes.stdin is not None
        assert pipes.stdout is not None
        pipes.stdin.write(msgspec.json.encode(work).decode() + "\n")
        pipes.stdin.flush()
        return int(pipes.stdout.readline())

    def recovered(self) -> dict[str, Entry]:
        """The tree after a fresh start, which must leave nothing open and nothing under a temporary name."""
        surface = self._surface()
        try:
            assert surface.service.journal.intents() == []
            self._check_effect(surface.service)
        finally:
            surface.close()
        found = look(self.root)
        assert [path for path in found if os.path.basename(path).startswith(PREFIX)] == []
        return found

    def _check_effect(self, workspace: Workspace) -> None:
        """What the journal says is in force is what stands there."""
        row = workspace.journal.row(self.change)
        assert row is not None
        if look(self.root) == self.before:
            assert not is_effective(workspace.journal, row)


@pytest.fixture(params=["journal", "strict"])
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Tree:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    put_compiled_rules(tmp_path / "home")
    return Tree(tmp_path, request.param)


@pytest.mark.thorough
def test_an_undo_that_is_killed_anywhere_is_whole_or_not_there(tree: Tree) -> None:
    ended = {True: False, False: False}  # by direction: whether it came to its end without meeting the fault
    number = 0
    while not all(ended.values()):
        number += 1
        was_undone = look(tree.root) == tree.before
        code = tree.run(fault=f"*=kill@{number}")
        assert code in (0, -9)
        found = tree.recovered()
        assert found in (tree.before, tree.after), number
        ended[was_undone] = ended[was_undone] or code == 0
        if code == 0:
            assert (found == tree.before) != was_undone
        if (found == tree.before) == was_undone:
            assert tree.run() == 0  # the same direction once more, to go on with the other
            assert tree.recovered() == (tree.after if was_undone else tree.before)
            assert tree.run() == 0
            tree.recovered()


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [4, 20])
def test_a_recovery_that_is_killed_anywhere_is_finished_by_the_next(tree: Tree, landed: int) -> None:
    number = 1
    while True:
        number += 3
        was_undone = look(tree.root) == tree.before
        assert tree.run(fault=f"commit.file_landed=kill@{landed}") == -9
        code = tree.run(fault_of_opening=f"*=kill@{number}", calls=False)
        found = tree.recovered()
        assert found == (tree.after if was_undone else tree.before), number
        if code == 0:
            break


@pytest.mark.parametrize("place", ["link", "becomes-link", "file-becomes-folder", "new"])
def test_what_another_program_put_there_before_the_recovery_stays(tree: Tree, place: str) -> None:
    assert tree.run(fault="commit.decided=kill") == -9
    path = tree.root / place
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to("theirs")
    found = tree.recovered()
    assert found[place] == Entry("link", b"theirs", None)
    rest = {
        name: entry for name, entry in found.items() if name != place and not name.startswith(f"{place}/")
    }
    whole = {
        name: entry
        for name, entry in tree.after.items()
        if name != place and not name.startswith(f"{place}/")
    }
    assert rest == whole


def test_a_failed_step_takes_the_others_back(tree: Tree) -> None:
    for landed in (3, 12, 22):
        assert tree.run(fault=f"commit.file_landed=eio@{landed}") == 1
        assert tree.recovered() == tree.after


@pytest.mark.thorough
def test_an_undo_that_fails_anywhere_is_whole_or_not_there(tree: Tree) -> None:
    for number in range(1, 250, 2):
        is_refused = tree.run(fault=f"*=eio@{number}") != 0
        found = tree.recovered()
        assert found == (tree.after if is_refused else tree.before), number
        if not is_refused:
            assert tree.run() == 0
            assert tree.recovered() == tree.after
