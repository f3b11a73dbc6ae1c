"""`perdure journal`, `history`, `diff`, `undo`, `restore`, `verify`: a workspace at the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from harness import store_location
from perdure.cli.main import main
from perdure.cli.tool_command import CommandCall
from perdure.host import presence
from perdure.host.presence import Presence
from perdure.protocol.tools import View
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Settings, open_write

Run = Callable[..., tuple[int, str, str]]


def store_of(workspace: Path) -> Path:
    return store_location.store_of(workspace, workspace.parent / "home")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions of `a`, one of `b` that is large."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    found = tmp_path / "work"
    found.mkdir()
    monkeypatch.setenv("PERDURE_WORKSPACE", str(found))
    surface = WriteSurface(lambda: open_write(Settings(workspaces=(str(found),))))
    tool = {one.spec.name: one for one in surface.tools()}["safe_write"]
    for path, content, mode in (
        ("a", "one\n", "create"),
        ("a", "two\n", "overwrite"),
        ("b", "x" * 300_000, "create"),
    ):
        params = tool.spec.params(path=path, content=content, mode=mode)  # type: ignore[call-arg]
        tool.run(params, CommandCall("safe_write", View("json", "full")))
    surface.close()
    return found


def use(surface: WriteSurface, name: str, **given: Any) -> Any:
    tool = {one.spec.name: one for one in surface.tools()}[name]
    params = msgspec.convert(given, type=tool.spec.params)
    return tool.run(params, CommandCall(name, View("json", "full")))


@pytest.fixture
def written(workspace: Path) -> Path:
    """The same with a longer history: a transaction and its undo, an edit, a binary, a checkpoint."""
    surface = WriteSurface(lambda: open_write(Settings(workspaces=(str(workspace),))))
    ops = [{"op": "write", "path": "src/ünï code.py", "content": "x = 1\n"}, {"op": "delete", "path": "a"}]
    use(surface, "transaction", ops=ops)  # 4, 5
    use(surface, "undo")  # 6, 7
    use(surface, "safe_write", path="src/ünï code.py", content="x = 2\n")  # 8
    use(surface, "safe_write", path="b.txt", content="b\n" * 40)  # 9
    use(surface, "edit", path="b.txt", edits=[{"old": "b\n" * 40, "new": "c\n" * 39 + "end"}])  # 10
    use(surface, "safe_write", path="nul", content="AAEC", encoding="base64")  # 11
    surface.close()
    return workspace


@pytest.fixture
def run(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(words))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return go


def test_the_journal_and_the_history_can_be_read(run: Run) -> None:
    code, text, _ = run("journal", "--json")
    entries = json.loads(text)["entries"]
    assert code == 0
    assert [(e["path"], e["mode"]) for e in entries] == [("a", "create"), ("a", "overwrite"), ("b", "create")]
    assert json.loads(run("journal", "--path", "b", "--json")[1])["entries"][0]["path"] == "b"
    assert len(json.loads(run("history", "a", "--json")[1])["versions"]) == 2
    code, text, _ = run("diff", "a")
    assert code == 0
    assert "-one" in text
    assert "+two" in text


def test_undo_and_restore_change_the_file(run: Run, workspace: Path) -> None:
    assert run("undo", "--path", "a", "--dry-run")[0] == 0
    assert (workspace / "a").read_text() == "two\n"
    assert run("undo", "--path", "a")[0] == 0
    assert (workspace / "a").read_text() == "one\n"
    assert run("undo", "--path", "a", "--redo")[0] == 0
    assert (workspace / "a").read_text() == "two\n"
    assert run("restore", "a", "1")[0] == 0
    assert (workspace / "a").read_text() == "one\n"


def test_exit_codes_tell_what_kind_of_failure_it_was(run: Run, workspace: Path) -> None:
    assert run("restore", "a", "99")[0] == 1
    assert run("restore", "a", "1", "--expect", "0" * 64)[0] == 3
    (workspace / "a").write_text("of another program\n")
    code, text, _ = run("undo", "--path", "a", "--json")
    assert (code, bool(json.loads(text)["conflicts"])) == (3, True)
    assert (workspace / "a").read_text() == "of another program\n"
    code, out, err = run("history", "../outside")
    assert (code != 0, out) == (True, "")
    assert err.startswith("perdure history: ../outside is outside of the workspace (")


def test_a_sound_workspace_is_sound_and_drift_is_told(run: Run, workspace: Path) -> None:
    assert run("verify") == (0, "sound  3 writes\n", "")
    (workspace / "a").write_text("of another program\n")
    (workspace / "b").unlink()
    code, text, _ = run("verify", "--json")
    problems = json.loads(text)["problems"]
    assert code == 0
    assert [(p["kind"], p["detail"]) for p in problems] == [
        ("drift", "a was changed since change 2"),
        ("drift", "b is gone since change 3"),
    ]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE journal SET bytes = 7 WHERE seq = 2", "chain"),
        ("UPDATE journal SET path = 'z' WHERE seq = 2", "chain"),
        ("UPDATE journal SET detail = '{\"a\":1}' WHERE seq = 1", "chain"),
        ("DELETE FROM journal WHERE seq = 2", "gap"),
        ("DELETE FROM journal WHERE seq = 3", "truncated"),
        ("UPDATE contents SET data = x'00' WHERE codec < 2", "content"),
        ("UPDATE contents SET data = x'00', codec = 0 WHERE data IS NOT NULL", "content"),
    ],
)
def test_what_was_tampered_with_is_found(run: Run, workspace: Path, statement: str, kind: str) -> None:
    connection = apsw.Connection(str(store_of(workspace) / "journal.db"))
    connection.execute(statement)
    connection.close()
    code, text, _ = run("verify", "--json")
    assert code == 1
    assert kind in {problem["kind"] for problem in json.loads(text)["problems"]}


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_file_of_the_store_is_found(run: Run, workspace: Path, damage: str) -> None:
    (blob,) = (store_of(workspace) / "blobs").iterdir()
    if damage == "gone":
        blob.unlink()
    else:
        data = blob.read_bytes()
        blob.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"!")
    code, text, _ = run("verify", "--json")
    assert code == 1
    assert [problem["kind"] for problem in json.loads(text)["problems"]] == ["content"]


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]),
        (("-n", "2"), ["10", "11"]),
        (("-n", "2", "--cursor", "10"), ["8", "9"]),
        (("--path", "b.txt"), ["9", "10"]),
        (("--path", "./src/../b.txt"), ["9", "10"]),
        (("--mode", "delete"), ["5", "7"]),
        (("--client", "perdure-cli"), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]),
        (("--client", "nobody"), []),
    ],
    ids=" ".join,
)
def test_the_journal_is_filtered_and_paged(
    run: Run, written: Path, words: tuple[str, ...], ids: list[str]
) -> None:
    code, text, _ = run("journal", *words, "--json")
    assert code == 0
    assert [entry["journal_id"] for entry in json.loads(text)["entries"]] == ids
    code, shown, _ = run("journal", *words)
    assert code == 0
    if ids:
        assert [line.split()[0] for line in shown.splitlines() if line.split()[0].isdigit()] == ids
    else:
        assert shown == f"No change in {written} matches.\n"


def test_a_mode_that_does_not_exist_is_a_usage_error_with_the_modes(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run("journal", "--mode", "overwriet")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "'create', 'overwrite', 'append', 'replace', 'delete', 'move'" in error
    assert "did you mean overwrite?" in error


def test_a_file_has_one_history_however_its_path_is_written(run: Run, written: Path) -> None:
    (written / "link").symlink_to("src")
    code, wanted, _ = run("history", "a", "--json")
    assert (code, [v["journal_id"] for v in json.loads(wanted)["versions"]]) == (0, ["6", "5", "2", "1"])
    for path in ("./a", str(written / "a"), "src/../a"):
        assert run("history", path, "--json") == (0, wanted, "")
    for path in ("src/ünï code.py", "link/ünï code.py"):
        found = json.loads(run("history", path, "--json")[1])
        assert found["path"] == "src/ünï code.py"
        assert [version["journal_id"] for version in found["versions"]] == ["8", "7", "4"]
    assert run("history", "never written")[0] == 1


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (("b.txt",), 0, ["--- a/b.txt\n+++ b/b.txt\n@@", "+end", "\\ No newline at end of file"]),
        (("b.txt", "--to", "10"), 0, ["-b", "+c"]),
        (("b.txt", "--from", "10", "--to", "9"), 0, ["+b", "-c"]),
        (("src/ünï code.py",), 0, ["+++ b/src/ünï code.py\t\n", "+x = 2"]),
        (("b",), 0, ["--- /dev/null\n", "+" + "x" * 300_000]),
        (("nul",), 0, ["Binary files /dev/null and b/nul differ\n"]),
        (("b.txt", "--from", "10"), 0, ["no difference: b.txt 10 and disk"]),
        (("never written",), 1, ["Perdure has recorded no change of never written"]),
        (("b.txt", "--to", "1"), 1, ["b.txt has no version"]),
        (("b.txt", "--to", "x"), 1, ["b.txt has no version"]),
        ((".perdure/journal.db",), 4, ["perdure diff"]),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_versions_are_compared_with_each_other_and_with_the_disk(
    run: Run, written: Path, words: tuple[str, ...], code: int, shown: list[str]
) -> None:
    found, text, error = run("diff", *words)
    assert (found, [part for part in shown if part not in text + error]) == (code, []), text + error
    told = json.loads(run("diff", *words, "--json")[1])
    assert told.get("ok", False) is (code == 0)


def test_a_diff_shows_what_another_program_changed(run: Run, written: Path) -> None:
    (written / "b.txt").write_text("b\nanother\n")
    code, text, _ = run("diff", "b.txt")
    assert (code, "+another" in text, text.startswith("--- a/b.txt\n")) == (0, True, True)


READING = [
    ("journal",),
    ("timeline",),
    ("blame", "a"),
    ("verify",),
    ("history", "a"),
    ("diff", "a"),
    ("show", "1"),
    ("cat", "a@1"),
    ("handoff", "show"),
]


@pytest.mark.parametrize(
    "words", [*READING, ("status",), ("undo", "--dry-run"), ("undo",), ("restore", "a", "1")], ids=" ".join
)
def test_reading_where_nothing_was_written_makes_nothing(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERDURE_WORKSPACE", str(tmp_path / "work"))
    code = main(list(words))
    assert code == (0 if words[0] in ("journal", "timeline", "verify", "status", "du", "gc") else 1)
    if words == ("journal",):
        assert capsys.readouterr().out == (
            f"No changes yet in {tmp_path / 'work'}. "
            "Agents' writes through Perdure appear here (perdure install CLIENT).\n"
        )
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_waits_for_no_lock_and_changes_no_file(
    run: Run, written: Path, words: tuple[str, ...]
) -> None:
    """A worker that hangs in the middle of a commit holds both locks."""
    folder = store_of(written)
    before = run(*words)
    holder = apsw.Connection(str(folder / "journal.db"))
    holder.execute("BEGIN IMMEDIATE")
    lock = os.open(folder / "lock", os.O_RDWR)
    flock(lock, LOCK_EX | LOCK_NB)
    files = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    try:
        assert run(*words) == before
        assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == files
    finally:
        os.close(lock)
        holder.close()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_journal_that_may_not_be_written_can_be_read(
    run: Run, written: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(*words)
    folder = store_of(written)
    for name in ("wal", "shm"):  # what SQLite makes, and leaves, to read
        (folder / f"journal.db-{name}").unlink()
    names = sorted(path.name for path in folder.iterdir())
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK and may(path, mode, **more))
    folder.chmod(0o500)
    try:
        assert run(*words) == before
    finally:
        folder.chmod(0o700)
    assert sorted(path.name for path in folder.iterdir()) == names


@pytest.mark.parametrize("is_served", [False, True], ids=["no host", "a host"])
def test_what_a_killed_process_left_open_is_settled_before_it_is_shown(
    run: Run, workspace: Path, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a running host it is left to that host."""
    host = Presence(os.getpid(), "s", "0", str(workspace), 0.0, 1)
    monkeypatch.setattr(presence, "running", lambda: [host] if is_served else [])
    journal = str(store_of(workspace) / "journal.db")
    connection = apsw.Connection(journal)
    connection.execute("INSERT INTO intents SELECT max(seq), 'another boot' FROM journal")
    connection.close()

    assert run("journal", "--json")[0] == 0

    connection = apsw.Connection(journal)
    assert connection.execute("SELECT count(*) FROM intents").fetchall() == [(1 if is_served else 0,)]
    connection.close()


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_journal_of_a_newer_version_is_refused_with_the_reason(
    run: Run, workspace: Path, words: tuple[str, ...]
) -> None:
    connection = apsw.Connection(str(store_of(workspace) / "journal.db"))
    connection.pragma("user_version", 99)
    connection.close()
    code, text, error = run(*words)
    assert (code, text) == (4, "")
    assert "written by a newer version (format 99" in error
