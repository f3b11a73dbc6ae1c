"""`perdure timeline`, `show`, `cat` and `blame` on what hooks recorded."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from commands import Terminal

from harness import store_location
from perdure.cli.main import main
from perdure.storage.journal import Journal, NewRow
from perdure.storage.timeline import NotCovered
from perdure.worker.compose import Settings, open_write
from recorded_calls import Effect, record, record_other_program
from testbed import Bed

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace with a subfolder, which is the current one."""
    for name in ("PERDURE_WORKSPACE", "RW_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "proj"
    (folder / "sub").mkdir(parents=True)
    monkeypatch.chdir(folder / "sub")
    return folder


@contextmanager
def journal_of(project: Path) -> Iterator[Journal]:
    service = open_write(Settings(workspaces=(str(project),)))
    try:
        yield service.journal
    finally:
        service.close()


@pytest.fixture
def run(project: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    def go(*words: str) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = main(list(words))
        shown = capsysbinary.readouterr()
        return code, shown.out.decode(), shown.err.decode()

    return go


def told(run: Run, *words: str) -> Any:
    code, text, error = run(*words, "--json")
    assert code == 0, text + error
    return json.loads(text)


# --- timeline ---------------------------------------------------------------------------------------------------


def test_json_has_the_changes_oldest_first_and_what_is_not_covered(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        first = record(journal, Effect("a", None, b"x\n"), turn=1, command="make", call_id="c1")[0]
        second = record(journal, Effect("sub/b", None, b"x\n"), agent="tester", client="codex", session="s2")[
            0
        ]
        journal.transact(lambda: journal.set_not_covered([NotCovered("dist", "ignored", 3)]))
    payload = told(run, "timeline")
    assert [change["id"] for change in payload["changes"]] == [str(first.seq), str(second.seq)]
    assert payload["not_covered"] == [{"path": "dist", "reason": "ignored", "files": 3}]
    for words, wanted in (
        (("--n", "1"), second),
        (("--turn", "1"), first),
        (("--agent", "tester"), second),
        (("--session", "s1"), first),
        (("--client", "codex"), second),
        (("--path", "."), second),  # the current folder
        (("--path", "../a"), first),
    ):
        found = told(run, "timeline", *words)["changes"]
        assert [change["id"] for change in found] == [str(wanted.seq)], words
    assert len(told(run, "timeline", "--since", "10m")["changes"]) == 2
    assert run("timeline", "--since", "soon")[0] != 0


def test_a_pipe_gets_one_line_for_each_change_with_nothing_cut(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("a", None, b"1\n2\n"), turn=3, agent="tester", command="x" * 300)
        record_other_program(journal, Effect("notes", b"a\n", b"b\n"))
        record(journal, *(Effect(f"many/{n}", None, b"1\n") for n in range(200)))
    code, text, error = run("timeline")
    assert (code, error) == (0, "workspace ~/proj\n")
    head, first, second, third = text.splitlines()
    assert third.endswith("many/9  and 190 more")
    assert head.split()[:4] == ["id", "when", "client", "session"]
    for part in ("claude-code", "tester", "Bash", "done", "+2 −0", "x" * 300):
        assert part in first
    assert "another program" in second
    assert second.endswith("notes")


def new_row(path: str) -> NewRow:
    return NewRow(
        path=path,
        op="write",
        mode="create",
        old_sha=None,
        new_sha=b"1" * 32,
        bytes=1,
        client="c",
        session="s",
        txn="t_0123456789abcdef",
    )


def test_lines_that_are_too_many_to_count_are_no_empty_column(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        rows = [new_row(f"many/{n}") for n in range(600)]
        journal.transact(lambda: journal.settle([journal.append(row).seq for row in rows]))
    assert "+? −?" in run("timeline")[1]


@pytest.mark.thorough
def test_a_terminal_groups_calls_by_turn_and_fits_them_into_its_width(bed: Bed) -> None:
    with journal_in(bed) as journal:
        for turn in (1, 2):
            record(journal, Effect(f"src/{turn}.py", None, b"1\n"), tool="Write", turn=turn)
            record(journal, Effect("long/" * 30 + "x", None, b"1\n"), turn=turn, command="sed " * 40)
        record(journal, Effect("a", None, b"1\n"), turn=2, agent="tester", command="make", status="late")
        record_other_program(journal, Effect("notes", None, b"1\n"))
        places = [NotCovered(f"dist{n}", "ignored", n) for n in range(1, 9)]
        journal.transact(lambda: journal.set_not_covered(places))
    for columns in (60, 80, 120):
        shown = Terminal(bed, "timeline", columns=columns, COLUMNS=str(columns), NO_COLOR="1")
        assert shown.end() == 0
        lines = shown.shown.splitlines()
        assert max(map(len, lines)) <= columns
        heads = [line.split("  ")[:2] for line in lines if line and not line.startswith((" ", "not "))]
        assert heads == [
            ["claude-code", "turn 1"],
            ["claude-code", "turn 2"],
            ["another program", heads[2][1]],
        ]
        assert any("(late) make" in line and line.endswith("+1 −0") for line in lines)
    assert lines[-1].startswith("not covered: 8 places with 36 files: dist8 (ignored), dist7 (ignored), ")


@contextmanager
def journal_in(bed: Bed) -> Iterator[Journal]:
    """The journal of a workspace that commands open in processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bed.environ.items():
            patch.setenv(name, value)
        with journal_of(bed.workspace) as journal:
            yield journal


def test_an_empty_timeline_says_what_would_fill_it(run: Run, project: Path) -> None:
    assert run("timeline")[:2] == (
        0,
        "No changes yet in ~/proj/sub. `perdure install CLIENT --hooks --apply` records what an agent does, its shell "
        "commands included.\n",
    )
    assert told(run, "timeline")["changes"] == []
    with journal_of(project) as journal:
        record(journal, Effect("a", None, b"1\n"), turn=1)
    assert run("timeline", "--turn", "7")[1] == "No change of session s1 in ~/proj matches.\n"


# --- one change -------------------------------------------------------------------------------------------------


def test_show_has_the_author_the_command_and_an_entry_for_each_file(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        rows = record(
            journal,
            Effect("src", None, b"", {"kind": "directory"}),
            Effect("src/new.py", None, b"1\n"),
            Effect("a.py", b"1\n", b"2\n"),
            Effect("gone", b"1\n", None),
            Effect("to", None, b"from\n", {"moved_from": "from"}),
            Effect("from", b"from\n", None, {"moved_to": "to"}),
            Effect("run.sh", b"1\n", b"1\n", {"file_mode": 0o755, "mode_before": 0o644}),
            Effect("link", None, b"src/new.py", {"kind": "link"}),
            Effect("empty", None, b"", {"kind": "directory"}),
            turn=4,
            agent="tester",
            command="make all",
        )
    change = told(run, "show", str(rows[-1].seq))
    assert {name: change[name] for name in ("id", "turn", "agent", "tool", "command", "files")} == {
        "id": str(rows[0].seq),
        "turn": 4,
        "agent": "tester",
        "tool": "Bash",
        "command": "make all",
        "files": 6,
    }
    assert [(entry["op"], entry["path"], entry.get("from")) for entry in change["entries"]] == [
        ("create", "src/new.py", None),
        ("change", "a.py", None),
        ("delete", "gone", None),
        ("rename", "to", "from"),
        ("mode", "run.sh", None),
        ("link", "link", None),
        ("create", "empty", None),
    ]
    by_path = {entry["path"]: entry for entry in change["entries"]}
    assert by_path["run.sh"]["mode"] == "0755"
    assert by_path["to"]["prev_sha256"] == by_path["to"]["sha256"] is not None
    assert by_path["a.py"]["diff"] == "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n"
    assert (by_path["empty"]["kind"], "diff" in by_path["empty"]) == ("directory", False)
    shown = run("show", str(rows[0].txn))[1]
    for part in (
        "change 1  Bash\nran    make all\nby     claude-code  agent tester  turn 4  session s1\n",
        "\nlink link -> src/new.py\n",
        "\nmode run.sh to 0755\n",
        "\nrename from -> to\n",
        "\ncreate directory empty\n",
    ):
        assert part in shown


def test_the_diffs_of_a_change_go_into_git_apply_modes_moves_and_links_included(
    run: Run, project: Path
) -> None:
    before = {"a b.py": b"1\n", "run.sh": b"1\n", "from": b"1\n2\n3\n"}
    for name, data in before.items():
        (project / name).write_bytes(data)
        (project / name).chmod(0o644)
    with journal_of(project) as journal:
        record(
            journal,
            Effect("a b.py", b"1\n", b"2\n"),
            Effect("run.sh", b"1\n", b"1\n", {"file_mode": 0o755, "mode_before": 0o644}),
            Effect("to", None, b"1\n2\nthree\n", {"moved_from": "from"}),
            Effect("from", b"1\n2\n3\n", None, {"moved_to": "to"}),
            Effect("link", None, b"to", {"kind": "link"}),
        )
    diff = "".join(entry["diff"] for entry in told(run, "show", "1")["entries"])
    apply = subprocess.run(
        ["git", "apply", "-"], cwd=project, input=diff.encode(), env={"PATH": os.environ["PATH"]}, check=False,
        capture_output=True,
    )  # fmt: skip
    assert apply.returncode == 0, apply.stderr
    assert (project / "a b.py").read_bytes() == b"2\n"
    assert os.access(project / "run.sh", os.X_OK)
    assert (project / "to").read_bytes() == b"1\n2\nthree\n"
    assert not (project / "from").exists()
    assert os.readlink(project / "link") == "to"


def test_a_change_says_that_it_moved_the_head_of_git(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("a", b"1\n", b"2\n", {"head": "a" * 40, "head_after": "b" * 40}))
    assert told(run, "show", "1")["head"] == {"from": "a" * 40, "to": "b" * 40}
    assert f"HEAD   {'a' * 12} -> {'b' * 12}\n" in run("show", "1")[1]


def test_a_call_that_was_seen_several_times_is_one_change(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        rows = record(
            journal,
            Effect("a", b"1\n", b"2\n"),
            Effect("a", b"2\n", b"3\n"),
            Effect("passing", None, b"x\n"),
            Effect("passing", b"x\n", None),
        )
    change = told(run, "show", str(rows[0].seq))
    first, second = change["entries"]
    assert first["diff"].endswith("-1\n+3\n")
    assert (second["op"], second["no_diff"]) == ("delete", "it came and went within this change")


def test_cat_prints_the_file_as_it_was_after_the_change(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("other", None, b"x\n"))
        record(journal, Effect("sub/a", b"0\n", b"1\n"), Effect("sub/b", None, b"b\n"))
        record(journal, Effect("sub/a", b"1\n", None), Effect("link", None, b"sub/b", {"kind": "link"}))
        record(journal, Effect("folder", None, b"", {"kind": "directory"}))
    assert run("cat", "a@1")[1] == "0\n"  # not changed yet
    assert run("cat", "a@3")[1] == "1\n"  # by any id of the change
    code, text, error = run("cat", "a@4")
    assert (code, text) == (1, "")
    assert "sub/a was deleted by change 4" in error
    assert run("cat", "../link@5")[1] == "sub/b"
    assert "was a directory" in run("cat", "../folder@6")[2]
    assert run("cat", "b@1")[0] == 1
    assert run("cat", "a@99")[0] == 1


def test_a_diff_takes_any_id_of_a_change(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("a", None, b"1\n"), Effect("sub/b", None, b"b\n"))
    assert told(run, "diff", "b", "--to", "1")["diff"].endswith("+b\n")


def test_the_journal_and_the_history_say_what_is_no_regular_file(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(
            journal,
            Effect("sub/a", b"1\n", b"2\n"),
            Effect("sub/to", None, b"a", {"kind": "link"}),
            Effect("empty", None, b"", {"kind": "directory"}),
        )
    rows = [line.split() for line in run("journal")[1].splitlines()[1:]]
    assert [row[2:4] for row in rows] == [["overwrite", "sub/a"], ["create", "link"], ["create", "directory"]]
    entries = told(run, "journal")["entries"]
    assert [entry.get("kind") for entry in entries] == [None, "link", "directory"]
    assert [entry.get("added") for entry in entries] == [1, None, None]
    assert told(run, "history", "to")["versions"][0]["kind"] == "link"


# --- blame ------------------------------------------------------------------------------------------------------


def origins(run: Run, path: str) -> list[tuple[str | None, str, str]]:
    return [(line["id"], line["client"], line["text"]) for line in told(run, "blame", path)["lines"]]


def test_each_line_names_the_change_that_brought_it(run: Run, project: Path) -> None:
    versions = [b"old 1\nold 2\n", b"old 1\nnew 2\n", b"new 0\nold 1\nnew 2\n"]
    with journal_of(project) as journal:
        first = record(journal, Effect("sub/a", versions[0], versions[1]), turn=2, agent="tester")[0]
        second = record(journal, Effect("sub/a", versions[1], versions[2]), client="codex")[0]
    (project / "sub" / "a").write_bytes(versions[2] + b"by hand\n")
    assert origins(run, "a") == [
        (str(second.seq), "codex", "new 0"),
        (None, "before Perdure", "old 1"),
        (str(first.seq), "claude-code", "new 2"),
        (None, "another program", "by hand"),
    ]
    line = told(run, "blame", "a")["lines"][2]
    assert (line["line"], line["agent"], line["turn"]) == (3, "tester", 2)
    assert line["ts"].endswith("Z")
    text = run("blame", "a")[1]
    assert "claude-code tester turn 2" in text
    assert text.splitlines()[-1].endswith("4  by hand")


def test_blame_follows_a_move_and_skips_an_undo(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        made = record(journal, Effect("old", None, b"1\n2\n"))[0]
        record(
            journal,
            Effect("new", None, b"1\n2\n", {"moved_from": "old"}),
            Effect("old", b"1\n2\n", None, {"moved_to": "new"}),
        )
        record(journal, Effect("new", b"1\n2\n", b"1\n"), on_disk=project)
    wanted = [(str(made.seq), "claude-code", "1"), (str(made.seq), "claude-code", "2")]
    assert origins(run, "../new") == wanted[:1]
    assert run("undo", "4")[0] == 0
    assert (project / "new").read_bytes() == b"1\n2\n"
    assert origins(run, "../new") == wanted


def test_what_cannot_be_blamed_is_said_in_words(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("gone", b"1\n", None))
    (project / "binary").write_bytes(b"\0\xff\xfe\x01")
    (project / "large").write_bytes(b"x\n" * (5 << 20))
    (project / "empty").write_bytes(b"")
    for path, words in (
        ("gone", "change 1 by claude-code deleted it"),
        ("never", "never does not exist"),
        ("binary", "is not text"),
        ("large", "blame takes at most"),
    ):
        code, text, error = run("blame", f"../{path}")
        assert (code != 0, text) == (True, ""), path
        assert words in error
    assert origins(run, "../empty") == []


def test_a_line_whose_past_is_kept_no_longer_is_unknown(run: Run, project: Path) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("a", b"0\n1\n", b"0\n2\n"))
        last = record(journal, Effect("a", b"0\n2\n", b"0\n2\n3\n"), on_disk=project)[0]
    store = apsw.Connection(str(store_location.store_of(project, project.parent / "home") / "journal.db"))
    store.execute("DELETE FROM contents WHERE data = ?", (b"0\n1\n",))
    store.close()
    assert origins(run, "../a") == [
        (None, "unknown", "0"),
        (None, "unknown", "2"),
        (str(last.seq), "claude-code", "3"),
    ]


# --- stores -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_writable", [True, False], ids=["writable", "read-only"])
def test_a_store_of_an_earlier_version_is_read(
    run: Run, project: Path, is_writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal_of(project) as journal:
        record(journal, Effect("a", None, b"1\n"), on_disk=project)
    folder = store_location.store_of(project, project.parent / "home")
    store = apsw.Connection(str(folder / "journal.db"))
    for table in (
        "tracked_files",
        "tracked_version",
        "calls",
        "turns",
        "not_covered",
        "observation",
        "reservations",
    ):
        store.execute(f"DROP TABLE {table}")
    store.pragma("user_version", 4)
    store.close()
    data = (folder / "journal.db").read_bytes()
    if not is_writable:
        may = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode, **more: mode != os.W_OK and may(path, mode, **more)
        )
    [change] = told(run, "timeline")["changes"]
    assert (change["id"], change["tool"], change["status"]) == ("1", "Bash", "done")  # as its row tells
    assert told(run, "show", "1")["paths"] == ["a"]
    assert origins(run, "../a") == [("1", "claude-code", "1")]
    assert ((folder / "journal.db").read_bytes() == data) is not is_writable
