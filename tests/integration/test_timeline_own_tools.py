"""Perdure's own tools between the hooks of a client: their rows are the change, and no second one is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.write_tools import Tools
from perdure.storage.journal import Filter, Row
from perdure.storage.timeline import ChangeFilter, ChangeSummary
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder


class Stage:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = Tools(root)
        self.recorder = Recorder(self.tools.service)
        self.number = 0
        self.tell("session_start")
        self.tell("prompt")

    def tell(self, kind: str, **more: Any) -> None:
        facts = {"client": "claude-code", "session": "s1", "cwd": str(self.root), **more}
        self.recorder.handle(HookEvent(kind=kind, **facts))  # type: ignore[arg-type]

    def use(self, tool: str, *, as_text: bool = False, **arguments: Any) -> None:
        self.number += 1
        facts = {
            "tool": f"mcp__perdure__{tool}",
            "own_tool": tool,
            "call_id": f"c{self.number}",
            "agent": "a1",
        }
        self.tell("before_tool", **facts)
        if as_text:
            is_ok, answer = self.tools.show(tool, {**arguments, "render": "porcelain"})
            response: Any = [{"type": "text", "text": answer}]
        else:
            is_ok, response = self.tools.use(tool, arguments)
        assert is_ok, response
        self.tell("after_tool", response=response, **facts)

    def rows(self) -> list[Row]:
        return list(reversed(self.tools.service.journal.rows(Filter(), 100)))

    def changes(self) -> list[ChangeSummary]:
        return list(reversed(self.tools.service.journal.changes(ChangeFilter(), 100)))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    made = Stage(tmp_path / "work")
    yield made
    made.tools.close()


@pytest.mark.parametrize("as_text", [False, True])
def test_a_write_is_one_change_with_agent_turn_and_call(stage: Stage, as_text: bool) -> None:
    stage.use("safe_write", path="deep/er/f.txt", content="x\n", as_text=as_text)
    stage.tell("prompt")  # an observation
    assert [(row.path, row.op) for row in stage.rows()] == [("deep/er/f.txt", "write")]
    (change,) = stage.changes()
    assert change.call is not None
    assert (change.call.agent, change.call.turn, change.call.call_id) == ("a1", 1, "c1")
    assert (change.call.status, change.call.txn) == ("done", None)
    tracked = {file.path for file in stage.tools.service.journal.tracked_files()}
    assert tracked == {"deep", "deep/er", "deep/er/f.txt"}


@pytest.mark.parametrize("as_text", [False, True])
def test_a_transaction_is_one_change(stage: Stage, as_text: bool) -> None:
    ops = [{"op": "write", "path": name, "content": name} for name in ("a", "b")]
    stage.use("transaction", ops=ops, as_text=as_text)
    stage.tell("prompt")
    (change,) = stage.changes()
    assert change.files == 2
    assert change.call is not None
    assert change.call.call_id == "c1"
    assert change.call.txn == stage.rows()[0].txn


def test_a_reading_tool_leaves_no_call(stage: Stage) -> None:
    stage.tools.use("safe_write", {"path": "f", "content": "x"})
    stage.use("journal_tail")
    stage.use("history", path="f")
    assert [change.call for change in stage.changes()] == [None]
    assert stage.tools.service.journal.open_calls() == []


def test_undo_and_delete_are_followed(stage: Stage) -> None:
    stage.use("safe_write", path="f", content="1\n")
    stage.use("safe_write", path="f", content="2\n", mode="overwrite", force=True)
    stage.use("undo")
    assert (stage.root / "f").read_text() == "1\n"
    stage.use("transaction", ops=[{"op": "delete", "path": "f"}])
    stage.tell("prompt")
    assert [row.op for row in stage.rows()] == ["write", "write", "undo", "delete"]
    assert [change.call.call_id for change in stage.changes() if change.call is not None] == [
        "c1",
        "c2",
        "c3",
        "c4",
    ]
    assert stage.tools.service.journal.tracked_files() == []


def test_another_program_after_an_own_write(stage: Stage) -> None:
    stage.use("safe_write", path="f", content="1\n")
    (stage.root / "f").write_text("2\n")
    stage.tell("prompt")
    own, other = stage.rows()
    assert (own.new_sha, own.op) == (other.old_sha, "write")
    assert (other.client, other.op, other.mode) == ("another program", "native", "overwrite")


def test_what_was_recorded_can_be_undone_and_the_undo_is_no_second_change(stage: Stage) -> None:
    (stage.root / "f").write_text("1\n")
    stage.recorder.observe()
    (row,) = stage.rows()
    (stage.root / "f").write_text("2\n")
    stage.recorder.observe()
    is_ok, answer = stage.tools.use("undo", {"journal_id": str(stage.rows()[-1].seq)})
    assert is_ok, answer
    assert (stage.root / "f").read_text() == "1\n"
    stage.recorder.observe()
    assert [one.op for one in stage.rows()] == ["native", "native", "undo"]
    assert stage.rows()[-1].new_sha == row.new_sha


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [("1\n", "2\n", "overwrite"), ("1\n", None, "delete"), (None, "2\n", "create")],
)
def test_a_shell_change_under_a_write_is_a_change_of_the_shell_command(
    stage: Stage, before: str | None, after: str | None, mode: str
) -> None:
    file, command = stage.root / "f.txt", {"tool": "Bash", "command": "make", "call_id": "make"}
    if before is not None:
        file.write_text(before)
    stage.tell("before_tool", **command)
    file.write_text(after) if after is not None else file.unlink()
    stage.use("safe_write", path="f.txt", content="3\n", mode="append")
    stage.tell("after_tool", **command)
    recorded, written = stage.rows()[-2:]
    assert (recorded.op, recorded.mode, written.op) == ("native", mode, "write")
    shell = stage.changes()[-2]
    assert shell.call is not None
    assert (shell.call.tool, shell.call.status) == ("Bash", "done")
    is_ok, answer = stage.tools.use("undo", {"n": 2, "session": "any"})
    assert is_ok, answer
    assert (file.read_text() if file.exists() else None) == before
