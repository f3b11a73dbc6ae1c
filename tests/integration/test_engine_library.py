"""The engine without host, worker and tools, as a program that uses it as a library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perdure.protocol.calls import LocalCall
from perdure.workspace.contents import Content
from perdure.workspace.errors import AlreadyUndone, ChangeNotFound, NothingToUndo
from perdure.workspace.planning import PlanView
from perdure.workspace.undo.rewind import RewindTarget, rewind
from perdure.workspace.undo.selection import ANY_SESSION, Selection
from perdure.workspace.undo.undo import undo
from perdure.workspace.verify import verify
from perdure.workspace.workspace import Workspace, new_transaction_id

ARCHITECTURE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
UPPER_LAYERS = ("surfaces", "worker", "kernel", "host", "serve", "dash", "cli", "registry")
PRINT_UPPER_LAYERS = f"""
import sys
print(sorted(name for name in sys.modules if name.startswith({tuple(f"perdure.{one}" for one in UPPER_LAYERS)})))
"""


class WriteFiles:
    """Each file with its content; None deletes it."""

    def __init__(self, workspace: Workspace, files: dict[str, bytes | None]) -> None:
        self.paths = frozenset(files)
        self._txn = new_transaction_id()
        self._contents: dict[str, Content | None] = {
            path: workspace.store.take(data) if data is not None else None for path, data in files.items()
        }

    def stage(self, tree: PlanView) -> dict[str, list[str]]:
        rows = [
            tree.stage(tree.lookup(path), content, op="write", mode="overwrite", txn=self._txn)
            for path, content in self._contents.items()
        ]
        return {"ids": [str(row.seq) for row in rows]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def workspace(project: Path) -> Iterator[Workspace]:
    with closing(Workspace.open((str(project),))) as workspace:
        yield workspace


ADA, BOB = LocalCall("ada"), LocalCall("bob")


def write(workspace: Workspace, call: LocalCall, **files: bytes | None) -> list[str]:
    ids: list[str] = workspace.commit(call, WriteFiles(workspace, files)).result()["ids"]
    return ids


def test_the_lines_in_the_architecture_run_and_load_no_upper_layer(tmp_path: Path) -> None:
    lines = ARCHITECTURE.read_text().partition("```python\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", lines + PRINT_UPPER_LAYERS],
        cwd=tmp_path,
        env={**os.environ, "PERDURE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["b'one\\n' ['undo', 'write', 'write']", "None []", "[]"]


def test_an_undo_keeps_later_edits_of_others_and_names_their_file(workspace: Workspace) -> None:
    write(workspace, ADA, notes=b"1\n2\n3\n4\n5\n")
    (first,) = write(workspace, ADA, notes=b"one\n2\n3\n4\n5\n")
    write(workspace, BOB, notes=b"one\n2\n3\n4\nfive\n")
    result = undo(workspace, ADA, Selection())
    assert [row.undone for row in result.reverted] == [first]
    assert result.kept == ["notes"]
    assert workspace.read("notes") == b"1\n2\n3\n4\nfive\n"


def test_a_conflict_and_a_dry_run_change_nothing(workspace: Workspace) -> None:
    write(workspace, ADA, notes=b"ada\n")
    write(workspace, ADA, notes=b"ada 2\n")
    write(workspace, BOB, notes=b"bob\n")
    conflict = undo(workspace, ADA, Selection())
    assert [(one.reason, one.by) for one in conflict.conflicts] == [("later_edit", "bob")]
    preview = undo(workspace, ADA, Selection(session=ANY_SESSION, n=3), is_dry_run=True)
    assert [row.journal_id for row in preview.reverted] == [None] * 3
    assert workspace.read("notes") == b"bob\n"
    assert len(workspace.history("notes")) == 3


def test_what_cannot_be_undone_is_an_error_of_the_engine(workspace: Workspace) -> None:
    with pytest.raises(NothingToUndo):
        undo(workspace, ADA, Selection())
    with pytest.raises(ChangeNotFound):
        undo(workspace, ADA, Selection(ids=("7",)))
    (change,) = write(workspace, ADA, notes=b"x")
    undo(workspace, ADA, Selection(ids=(change,)))
    with pytest.raises(AlreadyUndone):
        undo(workspace, ADA, Selection(ids=(change,)))


def test_a_rewind_takes_back_every_session_and_a_redo_brings_it_again(
    workspace: Workspace, project: Path
) -> None:
    first, _ = write(workspace, ADA, a=b"1", b=b"2")
    write(workspace, BOB, a=None, c=b"3")
    result = rewind(workspace, ADA, RewindTarget(change=first))
    assert not any(project.iterdir())
    assert isinstance(result.by_author, list)
    assert {(one.client, one.files) for one in result.by_author} == {("ada", 2), ("bob", 2)}
    undo(workspace, ADA, Selection(redo=True))
    assert {path.name: path.read_bytes() for path in project.iterdir()} == {"b": b"2", "c": b"3"}
    assert list(verify(workspace)) == []


def test_a_workspace_for_reading_creates_nothing(project: Path, tmp_path: Path) -> None:
    with closing(Workspace.open((str(project),), is_read_only=True)) as workspace:
        assert workspace.history("notes") == []
        assert workspace.read("notes") is None
    assert not (tmp_path / "home").exists()
