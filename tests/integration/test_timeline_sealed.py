"""`[timeline] secrets = "seal"`: files that look like secrets are kept encrypted, restored, and never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import run_here, told

from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.event import EventKind, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.timeline.settings import TimelineSettings
from perdure.workspace.verify import verify
from perdure.workspace.workspace import Workspace
from testbed import Bed

KEY = "correct horse battery staple"
FIRST = "PASSWORD=a-very-particular-word-1\n"
SECOND = "PASSWORD=a-very-particular-word-2\n"
# By its content, as its name says nothing.
TOKEN = "token = 'ghp_" + "wWPw5k4aXcaT4fNP0UcnZwJUVFk6LO0pINUx'\n"


class Stage:
    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.root = bed.workspace
        self.number = 0
        self.workspace: Workspace = open_write(Settings(workspaces=(str(self.root),), surfaces=("write",)))
        self.recorder = Recorder(self.workspace, TimelineSettings(secrets="seal"))
        self.tell("session_start")

    def tell(self, kind: EventKind, **more: Any) -> None:
        self.recorder.handle(HookEvent(client="codex", kind=kind, session="s", cwd=str(self.root), **more))

    def change(self, *changes: tuple[str, str | None]) -> None:
        """One call that writes these files, or removes them."""
        self.number += 1
        facts = {"tool": "Bash", "call_id": f"c{self.number}", "command": "make"}
        self.tell("before_tool", **facts)
        for name, content in changes:
            if content is None:
                (self.root / name).unlink()
            else:
                (self.root / name).write_text(content)
        self.tell("after_tool", **facts)

    def run(self, *words: str, code: int | None = 0) -> str:
        done = run_here(self.bed, *words)
        assert code is None or done.returncode == code, done
        return done.stdout + done.stderr

    def ids(self) -> list[int]:
        return [change["id"] for change in told(self.bed, "timeline")["changes"]]


@pytest.fixture
def stage(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Any:
    bed.environ["PERDURE_SCRATCH_KEY"] = KEY
    for name in ("PERDURE_HOME", "PERDURE_SCRATCH_KEY"):
        monkeypatch.setenv(name, bed.environ[name])
    bed.settings('[timeline]\nsecrets = "seal"\n')
    (bed.workspace / ".env").write_text(FIRST)
    (bed.workspace / "config.py").write_text(TOKEN)
    (bed.workspace / "app.py").write_text("one\n")
    made = Stage(bed)
    yield made
    made.workspace.close()


def stored(root: Path) -> bytes:
    """All that is on disk but the workspace."""
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


def test_no_secret_is_on_the_disk_in_clear(stage: Stage) -> None:
    stage.change((".env", SECOND), ("config.py", None), ("app.py", "two\n"))
    stage.workspace.close()
    kept = stored(stage.bed.root / "home")
    assert b"particular-word" not in kept
    assert b"wWPw5k4aXcaT4fNP0U" not in kept
    assert told(stage.bed, "timeline")["not_covered"] == []


def test_undo_and_rewind_bring_secrets_back(stage: Stage) -> None:
    stage.change((".env", SECOND))
    stage.change((".env", None), ("config.py", None))
    first, second = stage.ids()
    stage.run("undo", str(second))
    assert (stage.root / ".env").read_text() == SECOND
    assert (stage.root / "config.py").read_text() == TOKEN
    stage.run("rewind", str(first))
    assert (stage.root / ".env").read_text() == FIRST


def test_undo_keeps_a_later_edit_of_a_secret_and_seals_what_it_writes(stage: Stage) -> None:
    first = "A=alpha-secret-word\nx\ny\nB=beta-secret-word\n"
    stage.change((".env", first))
    stage.change((".env", first.replace("alpha", "omega")))
    stage.change((".env", first.replace("alpha", "omega").replace("beta", "gamma")))
    stage.run("undo", str(stage.ids()[1]))
    assert (stage.root / ".env").read_text() == first.replace("beta", "gamma")
    stage.workspace.close()
    assert b"secret-word" not in stored(stage.bed.root / "home")


def test_a_collision_names_the_lines_and_prints_none(stage: Stage) -> None:
    stage.change((".env", SECOND))
    stage.change((".env", SECOND.replace("particular", "peculiar-particular")))
    output = stage.run("undo", str(stage.ids()[0]), code=3)
    assert "particular" not in output
    assert (stage.root / ".env").read_text() != FIRST
    assert "particular" not in stage.run("undo", str(stage.ids()[0]), "--json", code=3)


def test_nothing_prints_a_secret(stage: Stage) -> None:
    stage.change((".env", SECOND), ("app.py", "two\n"))
    stage.change((".env", FIRST))
    first = str(stage.ids()[0])
    outputs = [
        stage.run("show", first),
        stage.run("show", first, "--json"),
        stage.run("cat", f".env@{first}", code=None),
        stage.run("diff", ".env", code=None),
        stage.run("blame", ".env", code=None).replace(FIRST.strip(), ""),  # the file itself may be shown
        stage.run("timeline", "--json"),
        stage.run("journal"),
        stage.run("rewind", first, "--dry-run"),
        stage.run("undo", first, "--dry-run", "--json", code=None),
        stage.run("history", ".env", "--json"),
        stage.run("call", "timeline", "--json"),
        stage.run("call", "diff", "path=.env", f"to={first}", code=None),
    ]
    for output in outputs:
        assert "particular-word" not in output
    assert "+two" in outputs[0]
    assert "not shown" in outputs[0]
    assert "not shown" in outputs[2]
    entries = {entry["path"]: entry for entry in json.loads(outputs[1])["entries"]}
    assert "diff" not in entries[".env"]


def test_without_a_key_a_secret_is_not_covered_and_named(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", bed.environ["PERDURE_HOME"])
    monkeypatch.delenv("PERDURE_SCRATCH_KEY", raising=False)
    monkeypatch.setattr("perdure.storage.cipher._kept_key", _no_key)
    (bed.workspace / ".env").write_text(FIRST)
    stage = Stage(bed)
    assert [(place.path, place.reason) for place in stage.workspace.journal.not_covered()] == [
        (".env", "secret")
    ]
    stage.workspace.close()


def _no_key() -> str:
    from perdure.storage.errors import CipherError

    raise CipherError("no_key")


def test_another_key_restores_nothing_and_says_so(stage: Stage) -> None:
    stage.change((".env", SECOND))
    assert not list(verify(stage.workspace))
    stage.bed.environ["PERDURE_SCRATCH_KEY"] = "another"
    output = stage.run("undo", str(stage.ids()[0]), code=None)
    assert "another key" in output
    assert (stage.root / ".env").read_text() == SECOND


def test_verify_finds_a_damaged_sealed_content(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.change((".env", SECOND))
    monkeypatch.setenv("PERDURE_SCRATCH_KEY", "another")
    assert {problem.kind for problem in verify(stage.workspace)} == {"content"}
