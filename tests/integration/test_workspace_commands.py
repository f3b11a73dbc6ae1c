"""`perdure journal`, `history`, `diff`, `undo`, `restore`, `verify`: a workspace at the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.cli.main import main
from perdure.cli.tool_command import CommandCall
from perdure.model.tools import View
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Settings, open_write

Run = Callable[..., tuple[int, str, str]]


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
        tool.handler(params, CommandCall("safe_write", View("json", "full")))
    surface.close()
    return found


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
    assert err.startswith("perdure history: the path leads out of the workspace")


def test_a_sound_workspace_is_sound_and_drift_is_told(run: Run, workspace: Path) -> None:
    assert run("verify") == (0, "sound  3 writes  0 findings\n", "")
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
        ("DELETE FROM journal WHERE seq = 2", "gap"),
        ("DELETE FROM journal WHERE seq = 3", "truncated"),
        ("UPDATE contents SET data = x'00' WHERE codec < 2", "content"),
    ],
)
def test_what_was_tampered_with_is_found(run: Run, workspace: Path, statement: str, kind: str) -> None:
    connection = apsw.Connection(str(workspace / ".perdure" / "journal.db"))
    connection.execute(statement)
    connection.close()
    code, text, _ = run("verify", "--json")
    assert code == 1
    assert kind in {problem["kind"] for problem in json.loads(text)["problems"]}


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_file_of_the_store_is_found(run: Run, workspace: Path, damage: str) -> None:
    (blob,) = (workspace / ".perdure" / "blobs").iterdir()
    if damage == "gone":
        blob.unlink()
    else:
        data = blob.read_bytes()
        blob.write_bytes(data[:-1] if damage == "cut" else data[:-1] + b"!")
    code, text, _ = run("verify", "--json")
    assert code == 1
    assert [problem["kind"] for problem in json.loads(text)["problems"]] == ["content"]
