"""Histories in which a program without our lock meets a change of ours, each step by step: nobody's entry is lost.

The program here reads the file and later renames a copy with one section more over it, whatever was written meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.registry.errors import RegistryUnavailable
from perdure.registry.filesystem import FileBackend, open_markdown
from perdure.registry.mcp_md import MarkdownDocument

SOURCE = (
    "import os, sys\n"
    "from perdure.registry.entry import Entry\n"
    "from perdure.registry.opening import open_backend\n"
    "from perdure.registry.templates import Template\n"
    "open_backend(sys.argv[1], os.environ).install(Entry(name=sys.argv[2], command=Template('python')))\n"
)
OLD = "# MCP servers\n\n## old\ncommand: node\n"
NO_LEASE = "veil.draw=eopnotsupp"
"""As on a file system that cannot keep others from opening a file."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))


class Installing:
    """An installation in a process of its own that stops wherever a gate is set."""

    def __init__(self, path: Path, name: str, *points: str, also: str = "") -> None:
        self._gates = {point: path.parent / f"gate-{point}" for point in points}
        faults = [f"{point}=pause:{gate}@1" for point, gate in self._gates.items()]
        env = {**os.environ, "PERDURE_FAULT": ";".join([*faults, *filter(None, [also])])}
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
        self._reading = threading.Thread()

    def reads(self) -> None:
        self._seen = self._path.read_text()

    def begins_to_read(self) -> None:
        """Returns when it has read the file, or waits for it to be opened."""
        self._reading = threading.Thread(target=self.reads)
        self._reading.start()
        while self._reading.is_alive() and "BREAKING" not in Path("/proc/locks").read_text():
            pass

    def begins_to_append(self, name: str) -> None:
        """Returns when it has written one more section into the file, or waits for it to be opened."""
        self._reading = threading.Thread(target=self.appends, args=(name,))
        self._reading.start()
        while self._reading.is_alive() and "BREAKING" not in Path("/proc/locks").read_text():
            pass

    def appends(self, name: str) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write(f"\n## {name}\ncommand: node\n".encode())

    def writes(self, name: str) -> None:
        """What it read, with one more section."""
        if self._reading.ident is not None:
            self._reading.join()
        beside = self._path.parent / "copy"
        beside.write_text(f"{self._seen}\n## {name}\ncommand: node\n")
        os.replace(beside, self._path)


def listed(path: Path) -> list[str]:
    return [ref.name for ref in open_markdown(str(path), os.environ).list_servers()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "mcp.md"
    found.write_text(OLD)
    return found


@pytest.mark.parametrize("also", ["", NO_LEASE])
def test_who_reads_while_ours_stands_there_by_mistake_loses_nothing_by_it(path: Path, also: str) -> None:
    """Ours was planned before their first section and changes places with it: for a moment it is not in the file."""
    program = Program(path)
    ours = Installing(
        path, "new", "write.before_exchange", "write.exchanged", "write.swapped_back", also=also
    )
    ours.stops_at("write.before_exchange")
    program.reads()
    program.writes("theirs-0")
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.begins_to_read()
    ours.goes_on("write.exchanged")
    ours.stops_at("write.swapped_back")
    ours.goes_on("write.swapped_back")
    while "## theirs-0" not in path.read_text() or "## new" not in path.read_text():
        pass
    program.writes("theirs-1")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0", "theirs-1"]


@pytest.mark.parametrize("also", ["", NO_LEASE])
def test_an_installation_is_not_told_that_its_own_entry_is_there_already(path: Path, also: str) -> None:
    """Ours stands there by mistake, is read, is taken back, and comes back with what was read."""
    program = Program(path)
    ours = Installing(
        path, "new", "write.before_exchange", "write.exchanged", "write.swapped_back", also=also
    )
    ours.stops_at("write.before_exchange")
    program.reads()
    program.writes("theirs-0")
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.begins_to_read()
    ours.goes_on("write.exchanged")
    ours.stops_at("write.swapped_back")
    if also:
        program.writes("theirs-1")
        ours.goes_on("write.swapped_back")
    else:
        ours.goes_on("write.swapped_back")
        program.writes("theirs-1")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0", "theirs-1"]


def test_who_reads_an_older_content_of_theirs_while_it_is_put_back_loses_nothing_by_it(path: Path) -> None:
    """Theirs is taken for the newest and put back over their newer one: for a moment the older one is in the file."""
    program = Program(path)
    ours = Installing(path, "new", "write.before_exchange", "write.exchanged", "write.swapped_back")
    ours.stops_at("write.before_exchange")
    program.reads()
    program.writes("theirs-0")
    program.reads()
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.writes("theirs-1")
    ours.goes_on("write.exchanged")
    ours.stops_at("write.swapped_back")
    program.reads()
    ours.goes_on("write.swapped_back")
    while "## new" not in path.read_text():
        pass
    program.writes("theirs-2")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0", "theirs-1", "theirs-2"]


@pytest.mark.parametrize("also", ["", NO_LEASE])
def test_what_is_appended_to_ours_while_it_stands_there_by_mistake_is_not_lost(path: Path, also: str) -> None:
    program = Program(path)
    ours = Installing(path, "new", "write.before_exchange", "write.exchanged", also=also)
    ours.stops_at("write.before_exchange")
    program.appends("theirs-0")
    ours.goes_on("write.before_exchange")
    ours.stops_at("write.exchanged")
    program.begins_to_append("theirs-1")
    ours.goes_on("write.exchanged")
    assert ours.ends() == ""
    assert listed(path) == ["new", "old", "theirs-0", "theirs-1"]


def test_what_is_written_over_when_nobody_looks_any_more_comes_back_with_the_next_change(path: Path) -> None:
    program = Program(path)
    program.reads()
    assert Installing(path, "first").ends() == ""
    program.writes("theirs")
    assert listed(path) == ["old", "theirs"]
    assert Installing(path, "second").ends() == ""
    assert listed(path) == ["first", "old", "second", "theirs"]


def test_what_was_removed_and_is_written_back_is_removed_again_by_the_next_change(path: Path) -> None:
    program = Program(path)
    program.reads()
    open_markdown(str(path), os.environ).uninstall("old")
    program.writes("theirs")
    assert listed(path) == ["old", "theirs"]
    assert Installing(path, "new").ends() == ""
    assert listed(path) == ["new", "theirs"]


def test_what_was_written_over_can_be_installed_again(path: Path) -> None:
    program = Program(path)
    program.reads()
    assert Installing(path, "new").ends() == ""
    program.writes("theirs")
    assert Installing(path, "new").ends() == ""
    assert listed(path) == ["new", "old", "theirs"]


def test_an_entry_that_another_program_removes_on_purpose_stays_removed(path: Path) -> None:
    """It knows what was installed later, so it had read what it removes."""
    assert Installing(path, "first").ends() == ""
    assert Installing(path, "second").ends() == ""
    path.write_text(path.read_text().replace("\n## first\ncommand: python\n", ""))
    assert Installing(path, "third").ends() == ""
    assert listed(path) == ["old", "second", "third"]


def test_an_entry_that_another_program_changes_stays_as_it_says(path: Path) -> None:
    backend = open_markdown(str(path), os.environ)
    backend.set_enabled("old", False)
    path.write_text(path.read_text().replace("command: node", "command: bun").replace("false", "true"))
    assert Installing(path, "new").ends() == ""
    assert path.read_text().startswith("# MCP servers\n\n## old\ncommand: bun\nenabled: true\n")


def test_nobody_waits_for_one_who_looks_after_a_change(path: Path) -> None:
    first = Installing(path, "first", "registry.looking")
    first.stops_at("registry.looking")
    assert Installing(path, "second").ends() == ""
    first.goes_on("registry.looking")
    assert first.ends() == ""
    assert listed(path) == ["first", "old", "second"]


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
