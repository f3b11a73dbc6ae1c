"""Several processes in one workspace at the same time, and a program that takes no lock."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from perdure.cli.tool_command import CommandCall
from perdure.model.envelope import ToolError
from perdure.model.tools import View
from perdure.storage.journal import Filter
from perdure.surfaces.write.service import WriteService
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.compose import Settings, open_write

PROCESSES = 4
ROUNDS = 200
CONTEXT = multiprocessing.get_context("spawn")

Answer = dict[str, Any] | ToolError


class Writer:
    """The write surface of one process."""

    def __init__(self, workspace: str) -> None:
        self.surface = WriteSurface(lambda: open_write(Settings(workspaces=(workspace,))))
        self._tools = {tool.spec.name: tool for tool in self.surface.tools()}

    @property
    def service(self) -> WriteService:
        return self.surface.service

    def use(self, tool: str, **arguments: Any) -> Answer:
        declared = self._tools[tool]
        try:
            params = declared.spec.params(**arguments)
            return declared.handler(params, CommandCall(tool, View("json", "full")))  # type: ignore[return-value]
        except ToolError as error:
            return error


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def create(writer: Writer, who: int, number: int) -> str:
    return _told(writer.use("safe_write", path=f"new{number}", content=f"of {who}\n"))


def append(writer: Writer, who: int, number: int) -> str:
    return _told(writer.use("safe_write", path="log", content=f"{who} {number}\n", mode="append"))


def swap(writer: Writer, who: int, number: int) -> str:
    """All expect the same, which only the first of them finds."""
    return _told(
        writer.use(
            "safe_write",
            path=f"swap{number}",
            content=f"of {who}\n",
            mode="overwrite",
            expected_prev_sha256=sha("start\n"),
        )
    )


def edit(writer: Writer, who: int, number: int) -> str:
    """Everybody has a line of their own in one file."""
    from perdure.surfaces.write.edits import Edit

    change = Edit(f"line {who}: {number}\n", f"line {who}: {number + 1}\n")
    return _told(writer.use("edit", path="shared", edits=[change]))


def _told(answer: Answer) -> str:
    if isinstance(answer, ToolError):
        return f"{answer.envelope.error} {answer.envelope.context['reason']}"
    return "ok"


KINDS: dict[str, Callable[[Writer, int, int], str]] = {
    "create": create,
    "append": append,
    "swap": swap,
    "edit": edit,
}


def race(workspace: str, home: str, kind: str, who: int, barrier: Barrier, answers: Any) -> None:
    os.environ["PERDURE_HOME"] = home
    writer = Writer(workspace)
    writer.service  # noqa: B018 - opened before the first round
    told = []
    for number in range(ROUNDS):
        barrier.wait(60)
        told.append(KINDS[kind](writer, who, number))
    writer.surface.close()
    answers.put((who, told))


def raced(tmp_path: Path, kind: str) -> tuple[Path, list[list[str]]]:
    """What each process was told, round by round."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    barrier, answers = CONTEXT.Barrier(PROCESSES), CONTEXT.Queue()
    home = str(tmp_path / "home")
    started = [
        CONTEXT.Process(target=race, args=(str(workspace), home, kind, who, barrier, answers))
        for who in range(PROCESSES)
    ]
    for process in started:
        process.start()
    found = dict(answers.get(timeout=180) for _ in started)
    for process in started:
        process.join(30)
    return workspace, [found[who] for who in range(PROCESSES)]


def test_of_four_creators_exactly_one_wins_every_round(tmp_path: Path) -> None:
    workspace, told = raced(tmp_path, "create")
    for number in range(ROUNDS):
        winners = [who for who in range(PROCESSES) if told[who][number] == "ok"]
        assert len(winners) == 1
        assert (workspace / f"new{number}").read_text() == f"of {winners[0]}\n"
        assert {told[who][number] for who in range(PROCESSES)} <= {
            "ok",
            "stale_precondition file_already_exists",
        }


def test_no_appended_line_is_lost_or_doubled(tmp_path: Path) -> None:
    workspace, told = raced(tmp_path, "append")
    assert {one for answers in told for one in answers} == {"ok"}
    lines = (workspace / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{who} {number}" for who in range(PROCESSES) for number in range(ROUNDS))


def test_of_four_that_expect_the_same_exactly_one_wins(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for number in range(ROUNDS):
        (workspace / f"swap{number}").write_text("start\n")
    _, told = raced(tmp_path, "swap")
    for number in range(ROUNDS):
        winners = [who for who in range(PROCESSES) if told[who][number] == "ok"]
        assert len(winners) == 1
        assert (workspace / f"swap{number}").read_text() == f"of {winners[0]}\n"
        assert {told[who][number] for who in range(PROCESSES)} <= {"ok", "stale_precondition hash_mismatch"}


def test_edits_of_different_lines_all_land(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "shared").write_text("".join(f"line {who}: 0\n" for who in range(PROCESSES)))
    _, told = raced(tmp_path, "edit")
    assert {one for answers in told for one in answers} == {"ok"}
    assert (workspace / "shared").read_text() == "".join(
        f"line {who}: {ROUNDS}\n" for who in range(PROCESSES)
    )


@pytest.mark.parametrize("style", ["rename", "in place"])
def test_a_foreign_editors_content_is_never_gone_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """Every version of the other program is at its name, replaced by a change that knew it, or kept."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    target = workspace / "f"
    target.write_text("foreign 0\nours 0\n")
    stop = threading.Event()
    theirs: list[str] = []

    def rewrite() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            content = f"foreign {number}\nours 0\n"
            if style == "rename":
                (workspace / "temp").write_text(content)
                os.replace(workspace / "temp", target)
            else:
                target.write_text(content)
            theirs.append(content)
            stop.wait(0.002)

    writer = Writer(str(workspace))
    writer.use("read", path="f")
    editor = threading.Thread(target=rewrite)
    editor.start()
    done = 0
    from perdure.surfaces.write.edits import Edit

    for number in range(150):
        answer = writer.use("edit", path="f", edits=[Edit("ours 0\n", f"ours {number}\n")])
        done += not isinstance(answer, ToolError)
    stop.set()
    editor.join()

    journal = writer.service.journal
    known = {row.old_sha.hex() for row in journal.rows(Filter(path="f"), 1000) if row.old_sha is not None}
    kept = {draft.sha.hex() for draft in journal.drafts(1000)}
    # What its own author replaced is that author's affair: what counts is what stood there when a change landed.
    replaced = [row for row in journal.rows(Filter(path="f"), 1000) if row.old_sha is not None]
    for row in replaced:
        assert row.old_sha is not None
        old = writer.service.store.load(row.old_sha.hex()).decode()
        new = writer.service.store.load((row.new_sha or b"").hex()).decode()
        assert new.splitlines()[0] == old.splitlines()[0]
    final = target.read_text()
    mine = {row.new_sha.hex() for row in replaced if row.new_sha is not None}
    assert sha(theirs[-1]) in {sha(final), *known, *kept} or sha(final) in mine
    assert done > 0
    writer.surface.close()
