"""Undo and rewind of what a shell did: links, directories, modes and renames, put back byte for byte."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from write_tools import TestCall, Tools

from perdure.cli.main import main
from perdure.storage.timeline import ChangeFilter
from perdure.surfaces.write.undo import Rewind, rewind
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.verify import verify
from row_recorder import RowRecorder, look

Shell = Callable[[Path], None]


def plant(root: Path) -> None:
    """A small tree with something of each kind."""
    (root / "src/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "closed").mkdir()
    (root / "src/a.txt").write_text("one\ntwo\nthree\n")
    (root / "src/deep/b.bin").write_bytes(bytes(range(256)) * 800)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "closed/key").write_text("k\n")
    (root / "closed/key").chmod(0o400)
    (root / "closed").chmod(0o500)
    (root / "link").symlink_to("src/a.txt")
    (root / "folder-link").symlink_to("src")
    (root / "nowhere").symlink_to("../outside/gone")


def use(tools: Tools, name: str, **arguments: Any) -> dict[str, Any]:
    is_done, answer = tools.use(name, arguments)
    assert is_done, answer
    return answer


def replace_by_link(root: Path) -> None:
    shutil.rmtree(root / "src")
    (root / "src").symlink_to("empty")


def replace_by_file(root: Path) -> None:
    shutil.rmtree(root / "src")
    (root / "src").write_text("a file\n")


def replace_by_folder(root: Path) -> None:
    for name in ("run.sh", "link"):
        (root / name).unlink()
        (root / name).mkdir()
        (root / name / "inside").write_text("x")


def move_behind_a_link(root: Path) -> None:
    (root / "src").rename(root / "moved")
    (root / "src").symlink_to("moved")


def close_folders(root: Path) -> None:
    (root / "src/deep").chmod(0o500)
    (root / "closed").chmod(0o700)
    (root / "closed/key").unlink()


def retarget(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("run.sh")


def replace_link_by_file(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").write_text("f")


def remove_all(root: Path) -> None:
    (root / "closed").chmod(0o700)
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


CHANGES: dict[str, Shell] = {
    "rm -rf src": lambda root: shutil.rmtree(root / "src"),
    "mv src moved": lambda root: (root / "src").rename(root / "moved") and None,
    "ln -sfn": retarget,
    "rm link": lambda root: (root / "folder-link").unlink(),
    "ln -s": lambda root: (root / "new-link").symlink_to("/etc/hostname"),
    "rmdir": lambda root: (root / "empty").rmdir(),
    "mkdir -p": lambda root: (root / "x/y/z").mkdir(parents=True),
    "chmod": lambda root: (root / "run.sh").chmod(0o644),
    "chmod of folders": close_folders,
    "a folder becomes a link": replace_by_link,
    "a folder becomes a file": replace_by_file,
    "files become folders": replace_by_folder,
    "mv and ln -s": move_behind_a_link,
    "a link becomes a file": replace_link_by_file,
    "a new line in a name": lambda root: (root / "odd\nname\u200b").write_text("x") and None,
    "everything": remove_all,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("durability", ["journal", "strict"])
def test_what_a_shell_did_is_undone_and_redone_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Shell, durability: Any
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    plant(root)
    tools = Tools(root, durability)
    before = look(root)
    with RowRecorder(tools.service, root).change() as rows:
        change(root)
    after = look(root)
    assert before != after
    undone = use(tools, "undo", change=str(rows[-1]))
    assert (undone["conflicts"], undone["kept"]) == ([], [])
    assert look(root) == before
    use(tools, "undo", change=undone["journal_ids"][0], redo=True)
    assert look(root) == after
    assert [problem for problem in verify(tools.service) if problem.kind == "drift"] == []
    use(tools, "rewind", to=str(rows[0]), dry_run=False)
    assert look(root) == before
    tools.close()
    opened = Tools(root, durability)  # nothing waits, and nothing is left under a temporary name
    assert opened.service.journal.intents() == []
    assert look(root) == before
    opened.close()


@pytest.fixture
def planted(tools: Tools) -> Tools:
    plant(tools.workspace)
    return tools


def test_a_dry_run_changes_nothing(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        replace_by_link(root)
    after = look(root)
    for answer in (
        use(planted, "undo", change=str(rows[0]), dry_run=True),
        use(planted, "rewind", to=str(rows[0])),
    ):
        assert answer["dry_run"] is True
        assert {one["path"] for one in answer["reverted"]} == {
            "src",
            "src/a.txt",
            "src/deep",
            "src/deep/b.bin",
        }
        assert answer["journal_ids"] == []
    assert look(root) == after
    assert planted.service.journal.head == rows[-1]


def test_a_folder_that_somebody_uses_by_now_stays(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        (root / "new/inner").mkdir(parents=True)
        (root / "new/ours").write_text("x")
    (root / "new/inner/theirs").write_text("not ours\n")
    undone = use(planted, "undo", change=str(rows[0]))
    assert sorted(undone["kept"]) == ["new", "new/inner"]
    assert (root / "new/inner/theirs").read_text() == "not ours\n"
    assert not (root / "new/ours").exists()
    assert not planted.use("undo", {"change": str(rows[0])})[0]  # it counts as undone


@pytest.mark.parametrize("by", ["file", "link"])
def test_what_stands_where_a_folder_was_is_a_conflict(planted: Tools, by: str) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        shutil.rmtree(root / "src")
    if by == "file":
        (root / "src").write_text("theirs\n")
    else:
        (root / "src").symlink_to("empty")
    now = look(root)
    undone = use(planted, "undo", change=str(rows[0]))
    assert {one["path"]: one["reason"] for one in undone["conflicts"]}["src"] == "changed_since"
    assert {one["by"] for one in undone["conflicts"]} == {"another program"}
    assert undone["reverted"] == []
    assert look(root) == now


def test_a_link_is_never_followed(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        (root / "src/a.txt").write_text("changed\n")
    (root / "src/a.txt").unlink()
    (root / "target").write_text("changed\n")
    (root / "src/a.txt").symlink_to("../target")
    (conflict,) = use(planted, "undo", change=str(rows[0]))["conflicts"]
    assert conflict["reason"] == "changed_since"
    assert (root / "target").read_text() == "changed\n"


def test_a_folder_with_new_files_is_not_replaced_by_what_was_there(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        replace_by_folder(root)
    (root / "link/theirs").write_text("x")
    (conflict,) = use(planted, "undo", change=str(rows[0]))["conflicts"]
    assert (conflict["path"], conflict["reason"]) == ("link", "not_empty")


def test_a_content_that_is_not_known_is_a_conflict_of_its_own(planted: Tools) -> None:
    root, journal = planted.workspace, planted.service.journal
    with RowRecorder(planted.service, root).change() as rows:
        (root / "run.sh").write_text("changed\n")
    planted.service.committer.transact(
        lambda: journal._write.execute("DELETE FROM contents WHERE sha = ?", (journal.row(rows[0]).old_sha,))  # type: ignore[attr-defined, union-attr]
    )
    (conflict,) = use(planted, "undo", change=str(rows[0]))["conflicts"]
    assert (conflict["path"], conflict["reason"]) == ("run.sh", "former_content_unknown")
    assert (root / "run.sh").read_text() == "changed\n"


def test_later_edits_stay_and_the_mode_that_came_later_too(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change() as rows:
        (root / "src/a.txt").write_text("ONE\ntwo\nthree\n")
        (root / "run.sh").chmod(0o700)
    (root / "src/a.txt").write_text("ONE\ntwo\nTHREE\n")
    (root / "run.sh").chmod(0o711)
    undone = use(planted, "undo", change=str(rows[0]))
    assert undone["kept"] == ["src/a.txt"]
    assert (root / "src/a.txt").read_text() == "one\ntwo\nTHREE\n"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o711


def test_versions_of_links_and_folders_are_listed_compared_and_restored(planted: Tools) -> None:
    root = planted.workspace
    with RowRecorder(planted.service, root).change():
        retarget(root)
        replace_by_link(root)
        (root / "empty").rmdir()
    last = {one["path"]: one for one in use(planted, "journal_tail", n=50)["entries"]}
    assert (last["link"]["kind"], last["src"]["kind"], last["empty"]["kind"]) == ("link", "link", "directory")
    for path, row in last.items():
        (version,) = use(planted, "history", path=path)["versions"]
        assert version["journal_id"] == row["journal_id"]
        use(planted, "diff", path=path)
        use(planted, "diff", path=path, to=row["journal_id"])
    assert "-src/a.txt" in use(planted, "diff", path="link")["diff"]
    assert "+run.sh" in use(planted, "diff", path="link")["diff"]
    (root / "link").unlink()
    use(planted, "restore", path="link", journal_id=last["link"]["journal_id"])
    assert (root / "link").readlink() == Path("run.sh")
    (root / "link").unlink()
    (root / "link").symlink_to("src")
    use(planted, "restore", path="link", journal_id=last["link"]["journal_id"])
    assert (root / "link").readlink() == Path("run.sh")


# --- which changes ------------------------------------------------------------------------------------------------


@pytest.fixture
def three_turns(planted: Tools) -> Tools:
    root, recorder = planted.workspace, RowRecorder(planted.service, planted.workspace)
    with recorder.change(turn=1):
        (root / "first").write_text("1")
    with recorder.change(turn=2, agent="reviewer"):
        (root / "second").write_text("2")
    with recorder.change(turn=2):
        (root / "src/third").write_text("3")
    with recorder.change(turn=2, session="other"):
        (root / "elsewhere").write_text("e")
    with recorder.change(turn=3):
        (root / "fourth").write_text("4")
    return planted


def test_one_turn_of_three_is_undone(three_turns: Tools) -> None:
    undone = use(three_turns, "undo", turn=2)
    assert undone["session"] == "s1"
    assert [(one["path"], one.get("agent")) for one in undone["reverted"]] == [
        ("src/third", None),
        ("second", "reviewer"),
    ]
    assert {"first", "fourth", "elsewhere"} <= look(three_turns.workspace).keys()


def test_a_turn_of_a_named_session_is_undone(three_turns: Tools) -> None:
    undone = use(three_turns, "undo", turn=2, session="other")
    assert [one["path"] for one in undone["reverted"]] == ["elsewhere"]


def test_all_of_a_subagent_is_undone(three_turns: Tools) -> None:
    assert [one["path"] for one in use(three_turns, "undo", agent="reviewer")["reverted"]] == ["second"]


def test_changes_in_a_folder_are_undone(three_turns: Tools) -> None:
    assert [one["path"] for one in use(three_turns, "undo", path="src", session="any")["reverted"]] == [
        "src/third"
    ]


def test_a_transaction_id_is_the_id_of_its_change(three_turns: Tools) -> None:
    row = three_turns.service.journal.row(2)
    assert row is not None
    assert [one["path"] for one in use(three_turns, "undo", change=row.txn)["reverted"]] == ["second"]


def test_the_command_undoes_a_turn_and_names_its_session(
    three_turns: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    three_turns.close()
    assert main(["undo", "--turn", "2", "--workspace", str(three_turns.workspace), "--json"]) == 0
    text = capsys.readouterr().out
    assert '"session":"s1"' in text
    assert '"ids":["6","7"]' in text
    assert not (three_turns.workspace / "second").exists()


# --- rewind ---------------------------------------------------------------------------------------------------------


def test_a_rewind_takes_back_whatever_came_since_and_redo_brings_it_back(three_turns: Tools) -> None:
    root = three_turns.workspace
    use(three_turns, "safe_write", path="fourth", mode="overwrite", content="ours\n")
    use(three_turns, "undo", change="3")  # an undo in between is no obstacle
    now = look(root)
    rewound = use(three_turns, "rewind", to="2", dry_run=False)
    assert {"second", "src/third", "elsewhere", "fourth"}.isdisjoint(look(root))
    assert (root / "first").exists()
    assert rewound["by_author"][0] == {"client": "shell", "changes": 2, "files": 2}
    assert {"client": "shell", "agent": "reviewer", "changes": 1, "files": 1} in rewound["by_author"]
    assert rewound["not_covered"] == []
    use(three_turns, "undo", redo=True)
    assert look(root) == now


def test_a_rewind_goes_exactly_back_over_changes_of_the_same_lines(planted: Tools) -> None:
    root, recorder = planted.workspace, RowRecorder(planted.service, planted.workspace)
    before = look(root)
    with recorder.change() as first:
        (root / "src/a.txt").write_text("1\ntwo\nthree\n")
    with recorder.change() as second:
        (root / "src/a.txt").write_text("1\ntwo\n3\n")
    use(planted, "undo", change=str(first[0]))
    with recorder.change():
        (root / "src/a.txt").write_text("something\nelse\n")
    assert second
    use(planted, "rewind", to=str(first[0]), dry_run=False)
    assert look(root) == before


def test_a_rewind_removes_a_folder_that_an_undo_had_to_leave(planted: Tools) -> None:
    root, recorder = planted.workspace, RowRecorder(planted.service, planted.workspace)
    before = look(root)
    with recorder.change() as first:
        (root / "new").mkdir()
        (root / "new/ours").write_text("x")
    with recorder.change():
        (root / "new/theirs").write_text("not ours\n")
    assert use(planted, "undo", change=str(first[0]))["kept"] == ["new"]
    now = look(root)
    use(planted, "rewind", to=str(first[0]), dry_run=False)
    assert look(root) == before
    use(planted, "undo", redo=True)
    assert look(root) == now


def test_a_rewind_restores_a_mode_that_an_undo_had_to_leave(planted: Tools) -> None:
    root, recorder = planted.workspace, RowRecorder(planted.service, planted.workspace)
    before = look(root)
    with recorder.change() as first:
        (root / "src/a.txt").chmod(0o755)
    with recorder.change():
        (root / "src/a.txt").chmod(0o600)
    use(planted, "undo", change=str(first[0]))
    use(planted, "rewind", to=str(first[0]), dry_run=False)
    assert look(root) == before


def test_a_folder_that_an_undo_makes_again_is_part_of_the_undo(planted: Tools) -> None:
    root, recorder = planted.workspace, Recorder(planted.service)
    recorder.observe()
    before = look(root)
    (root / "src/a.txt").unlink()
    recorder.observe()
    shutil.rmtree(root / "src")
    recorder.observe()
    without = look(root)
    use(planted, "undo", change="1")
    recorder.observe()
    assert list(verify(planted.service)) == []
    use(planted, "undo", redo=True)
    assert look(root) == without
    use(planted, "rewind", to="1", dry_run=False)
    assert look(root) == before


def test_a_rewind_of_one_folder_leaves_the_rest(three_turns: Tools) -> None:
    use(three_turns, "rewind", to="1", path="src", dry_run=False)
    assert {"first", "second", "fourth"} <= look(three_turns.workspace).keys()
    assert not (three_turns.workspace / "src/third").exists()


def test_a_rewind_says_that_git_is_elsewhere_by_now(planted: Tools) -> None:
    root = planted.workspace
    now, then = "a" * 40, "b" * 40
    (root / ".git").mkdir()
    (root / ".git/HEAD").write_text(f"{now}\n")
    with RowRecorder(planted.service, root).change(head=then) as rows:
        (root / "x").write_text("x")
    assert use(planted, "rewind", to=str(rows[0]))["head"] == {"from": now, "to": then}


def test_the_command_rewinds_to_a_time_and_lists_by_author(
    three_turns: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    three_turns.close()
    root = three_turns.workspace
    assert main(["rewind", "1h", "--workspace", str(root), "--dry-run"]) == 0
    assert "shell reviewer: 1 change, 1 file" in capsys.readouterr().out
    assert (root / "first").exists()
    assert main(["rewind", "1h", "--workspace", str(root)]) == 0
    assert not (root / "first").exists()
    assert "Redo: perdure undo --redo" in capsys.readouterr().out


def test_edits_that_are_not_recorded_yet_are_recorded_first(planted: Tools) -> None:
    root, recorder = planted.workspace, Recorder(planted.service)
    recorder.observe()
    before = look(root)
    (root / "src/a.txt").write_text("recorded\n")
    recorder.observe()
    [first] = planted.service.journal.changes(ChangeFilter(), 1)
    (root / "src/a.txt").write_text("not recorded\n")
    (root / "src/new.txt").write_text("not recorded\n")
    done = rewind(planted.service, Rewind(str(first.id), dry_run=False), TestCall("test"))
    assert done["conflicts"] == []
    assert look(root) == before
    redone = use(planted, "undo", redo=True, session="any")
    assert redone["conflicts"] == []
    assert (root / "src/a.txt").read_text() == "not recorded\n"


_MANY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from pathlib import Path
from row_recorder import RowRecorder, look
from write_tools import Tools
root = Path(sys.argv[1])
count = int(sys.argv[2])
tools = Tools(root)
for number in range(count):
    folder = root / f"d{number % 300}"
    folder.mkdir(exist_ok=True)
    (folder / f"f{number}").write_bytes(os.urandom(32) * 1000)
before = look(root)
with RowRecorder(tools.service, root).change() as rows:
    for number in range(count):
        (root / f"d{number % 300}/f{number}").unlink()
    for number in range(300):
        (root / f"d{number}").rmdir()
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
is_done, answer = tools.use("rewind", {"to": str(rows[0]), "dry_run": False})
assert is_done and not answer["conflicts"], answer
assert look(root) == before
tools.close()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024)
"""


def _rewind_many(tmp_path: Path, count: int) -> int:
    """In a process with few descriptors. Returns by how many MB its memory grew."""
    tests = Path(__file__).parent.parent
    (tmp_path / "work").mkdir()
    environment = {
        **os.environ,
        "PERDURE_HOME": str(tmp_path / "home"),
        "PYTHONPATH": f"{tests}:{tests / 'integration'}",
    }
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(tmp_path / "work"), str(count)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


@pytest.mark.thorough
def test_many_folders_are_rewound_with_few_descriptors(tmp_path: Path) -> None:
    _rewind_many(tmp_path, 320)


@pytest.mark.thorough
def test_ten_thousand_files_are_rewound_in_bounded_memory(tmp_path: Path) -> None:
    assert _rewind_many(tmp_path, 10_000) < 200  # their contents have 320 MB


# --- random trees -----------------------------------------------------------------------------------------------------


class Mess:
    """Changes a tree at random, by a seed."""

    NAMES = ("a", "b", "c", "d")

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._random = random.Random(seed)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _path(self) -> Path:
        path = self._root
        for _ in range(self._random.choice((1, 1, 2, 2, 3))):
            path = path / self._random.choice(self.NAMES)
            if not path.is_dir() or path.is_symlink():
                break
        return path

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()

    def _step(self) -> None:
        chance, path = self._random, self._path()
        match chance.randrange(8):
            case 0 | 1 if not path.is_dir() or path.is_symlink():
                self._remove(path)
                path.write_bytes(chance.choice((b"", b"x\n" * chance.randrange(5), os.urandom(20))))
                path.chmod(chance.choice((0o644, 0o600, 0o755)))
            case 2:
                self._remove(path)
            case 3:
                self._remove(path)
                path.symlink_to(chance.choice(("a", "../b", "/nowhere", "c/d")))
            case 4 if not os.path.lexists(path):
                path.mkdir(chance.choice((0o755, 0o700)))
            case 5:
                other = self._path()
                if os.path.lexists(path) and not os.path.lexists(other) and path not in other.parents:
                    path.rename(other)
            case 6 if os.path.lexists(path) and not path.is_symlink():
                path.chmod(chance.choice((0o755, 0o700, 0o750)))
            case 7 if path.is_file() and not path.is_symlink():
                path.write_bytes(path.read_bytes() + b"more\n")
            case _:
                pass


_tried = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


def _random_changes(root: Path, tools: Tools, seed: int) -> tuple[list[dict[str, Any]], list[int]]:
    """Looks at the tree before each change and after the last; the first row of each change."""
    Mess(root, seed).run(15)
    recorder = RowRecorder(tools.service, root)
    looks, firsts = [look(root)], []
    for number in range(4):
        with recorder.change() as rows:
            Mess(root, seed * 10 + number).run(6)
        if rows:
            looks.append(look(root))
            firsts.append(rows[0])
    return looks, firsts


@pytest.mark.thorough
@given(seed=st.integers(0, 10_000))
@_tried
def test_random_changes_are_taken_back_one_by_one_and_at_once(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    base = tmp_path_factory.mktemp("tree")
    root = base / "work"
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERDURE_HOME", str(base / "home"))
        tools = Tools(root)
        looks, firsts = _random_changes(root, tools, seed)
        for wanted, first in reversed(list(zip(looks, firsts, strict=False))):
            undone = use(tools, "undo", change=str(first))
            assert undone["conflicts"] == []
            assert look(root) == wanted
        for wanted in looks[1:]:
            undo = use(tools, "undo", redo=True)
            assert undo["conflicts"] == []
            assert look(root) == wanted
        for wanted, first in reversed(list(zip(looks, firsts, strict=False))):
            rewound = use(tools, "rewind", to=str(first), dry_run=False)
            assert rewound["conflicts"] == []
            assert look(root) == wanted
            use(tools, "undo", redo=True)
            assert look(root) == looks[-1]
        tools.close()
    shutil.rmtree(base)
