"""Step by step: a foreign program without our lock changes the file at a chosen point of a change of ours.

The program reads the file and later renames a copy with one more section over it, without a comparison.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.registry.errors import RegistryUnavailable
from perdure.registry.file.backend import FileBackend, open_markdown
from perdure.registry.file.mcp_md import MarkdownDocument

SOURCE = (
    "import os, sys\n"
    "from perdure.registry.entry import Entry\n"
    "from perdure.registry.backend import open_backend\n"
    "from perdure.registry.templates import Template\n"
    "open_backend(sys.argv[1], os.environ).install(Entry(name=sys.argv[2], command=Template('python')))\n"
)
OLD = "# MCP servers\n\n## old\ncommand: node\n"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


class Installing:
    """An installation in a process of its own that stops wherever a gate is set."""

    def __init__(self, path: Path, name: str, *points: str) -> None:
        self._gates = {point: path.parent / f"gate-{point}" for point in points}
        faults = [f"{point}=pause:{gate}@1" for point, gate in self._gates.items()]
        env = {**os.environ, "PERDURE_FAULT": ";".join(faults)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SOURCE, str(path), name], env=env, stderr=subprocess.PIPE
        )

    def stops_at(self, point: str) -> None:
        while not self._gates[point].exists():
            assert self._process.poll() is None, self._process.communicate()[1].decode()

    def goes_on(self, point: str) -> None:
        self._gates[point].unlink()

    def ends(self) -> str:
        """What it failed with, if it did."""
        said = self._process.communicate()[1].decode().strip()
        return said.splitlines()[-1] if self._process.returncode else ""


class Program:
    """A program that knows nothing of us."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = ""

    def reads(self) -> None:
        self._seen = self._path.read_text()

    def appends(self, name: str) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(f"\n## {name}\ncommand: node\n".encode())

    def writes(self, name: str) -> None:
        """What it read, with one more section."""
        beside = self._path.parent / "copy"
        beside.write_text(f"{self._seen}\n## {name}\ncommand: node\n")
        os.replace(beside, self._path)


def perdure(path: Path, *words: str) -> int:
    env = {**os.environ, "PERDURE_REGISTRY": str(path)}
    return subprocess.run(
        [sys.executable, "-m", "perdure", "registry", *words], env=env, stdout=subprocess.DEVNULL, timeout=60
    ).returncode


def listed(path: Path) -> list[str]:
    return [ref.name for ref in open_markdown(str(path), os.environ).list_servers()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "mcp.md"
    found.write_text(OLD)
    return found


def test_a_foreign_write_between_our_read_and_our_exchange_is_kept(path: Path) -> None:
    program = Program(path)
    ours = Installing(path, "new", "write.before_exchange")
    ours.stops_at("write.before_exchange")
    program.reads()
    program.writes("theirs")
    ours.goes_on("write.before_exchange")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs"]


def test_a_foreign_write_between_our_exchange_and_the_swap_back_is_kept(path: Path) -> None:
    """The newest foreign content ends at the name, also if it arrives while ours stands there unverified."""
    program = Program(path)
    ours = Installing(path, "new", "write.before_exchange", "write.exchanged")
    ours.stops_at("write.before_exchange")
    program.reads()
    program.writes("theirs-0")
    program.reads()
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.writes("theirs-1")
    ours.goes_on("write.exchanged")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0", "theirs-1"]


def test_a_section_appended_to_our_file_before_the_swap_back_is_in_a_backup(path: Path) -> None:
    program = Program(path)
    ours = Installing(path, "new", "write.before_exchange", "write.exchanged")
    ours.stops_at("write.before_exchange")
    program.appends("theirs-0")
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.appends("theirs-1")
    ours.goes_on("write.exchanged")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0"]
    backups = [one.read_text() for one in (path.parent / "home" / "backups").rglob("*") if one.is_file()]
    assert any("## theirs-1" in text for text in backups)


# --- a later command restores nothing -----------------------------------------------------------------------


def remove_by_hand(path: Path, name: str) -> None:
    """As in an editor that writes the file in place."""
    text = path.read_text()
    section = f"\n## {name}\ncommand: python\n"
    assert section in text
    path.write_text(text.replace(section, ""))


@pytest.mark.parametrize(
    "words",
    [
        ("install", "other", "--", "python"),
        ("uninstall", "old"),
        ("disable", "old"),
        ("enable", "old"),
        ("list",),
        ("show", "old"),
        ("validate", "old"),
        ("uninstall", "removed"),
    ],
    ids=" ".join,
)
def test_a_section_removed_by_hand_stays_removed_after_any_later_command(
    words: tuple[str, ...], path: Path
) -> None:
    path.write_text(path.read_text() + "\n<!-- saved by an editor -->\n")
    assert perdure(path, "install", "removed", "--", "python") == 0
    remove_by_hand(path, "removed")
    assert perdure(path, *words) == 0
    assert "removed" not in listed(path)
    assert "## removed" not in path.read_text()


def test_a_section_put_back_by_hand_stays_after_any_later_command(path: Path) -> None:
    before = path.read_text()
    assert perdure(path, "uninstall", "old") == 0
    path.write_text(before)
    for words in (
        ("install", "other", "--", "python"),
        ("disable", "other"),
        ("uninstall", "other"),
        ("list",),
    ):
        assert perdure(path, *words) == 0
        assert "old" in listed(path)
    assert path.read_text() == before


def test_a_section_changed_by_hand_stays_as_it_was_saved(path: Path) -> None:
    before = path.read_text()
    assert perdure(path, "disable", "old") == 0
    path.write_text(before)
    assert Installing(path, "new").ends() == ""
    assert open_markdown(str(path), os.environ).load("old").enabled
    assert listed(path) == ["new", "old"]


def test_a_change_that_a_stale_copy_overwrote_can_be_made_again(path: Path) -> None:
    program = Program(path)
    program.reads()
    assert Installing(path, "new").ends() == ""
    program.writes("theirs")
    assert listed(path) == ["old", "theirs"]
    assert Installing(path, "new").ends() == ""
    assert listed(path) == ["new", "old", "theirs"]


def test_who_waits_for_the_lock_in_vain_is_told_to_try_again(path: Path) -> None:
    first = Installing(path, "first", "registry.locked")
    first.stops_at("registry.locked")
    impatient = FileBackend(str(path), MarkdownDocument, os.environ, wait_s=0.01)
    with pytest.raises(RegistryUnavailable) as caught:
        impatient.uninstall("old")
    assert caught.value.retryable
    first.goes_on("registry.locked")
    assert first.ends() == ""
    impatient.uninstall("old")
    assert listed(path) == ["first"]
