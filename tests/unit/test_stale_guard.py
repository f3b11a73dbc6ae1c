"""What a session has last seen of a file, when its calls overlap."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.power.driver import Refused, named, run, write_surface
from perdure.platform.fault_points import arm
from perdure.storage import digest
from perdure.storage.files import fingerprint
from perdure.surfaces.write.surface import WriteSurface
from perdure.workspace import contents
from perdure.workspace.seen_files import SeenFiles

OLD, NEW = (hashlib.sha256(text).hexdigest() for text in (b"old\n", b"new\n"))


@pytest.fixture
def surface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WriteSurface]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "f").write_text("old\n")
    made = write_surface(str(tmp_path / "work"), "journal")
    assert isinstance(made, WriteSurface)
    yield made
    made.close()


def write(surface: WriteSurface, session: str) -> None:
    arguments = {"path": "f", "content": "new\n", "mode": "overwrite"}
    run(named(surface), "safe_write", arguments, session, None)


def test_a_read_that_ends_after_a_write_of_the_same_session_does_not_count(surface: WriteSurface) -> None:
    service = surface.service
    since = service.begin_read()
    write(surface, "mine")
    service.record_read("mine", "f", OLD, since)
    assert service.last_seen("mine", "f") == (NEW,)


def test_a_read_that_began_after_it_does(surface: WriteSurface) -> None:
    service = surface.service
    write(surface, "mine")
    service.record_read("mine", "f", OLD, service.begin_read())
    assert service.last_seen("mine", "f") == (OLD,)


def test_the_writes_of_others_do_not_make_a_read_newer_than_it_is(surface: WriteSurface) -> None:
    service = surface.service
    since = service.begin_read()
    write(surface, "theirs")
    service.record_read("mine", "f", OLD, since)
    assert service.last_seen("mine", "f") == (OLD,)


def test_who_failed_to_write_overwrites_nothing_that_came_meanwhile(
    surface: WriteSurface, tmp_path: Path
) -> None:
    """It never read the file; but it has tried to replace what was there, and that is gone when it tries again."""
    arm("write.before_exchange=eio")
    with pytest.raises(Refused):
        write(surface, "mine")
    arm("")
    assert surface.service.last_seen("mine", "f") == (OLD,)
    (tmp_path / "work" / "f").write_text("theirs\n")
    with pytest.raises(Refused, match="changed_since_seen"):
        write(surface, "mine")
    assert (tmp_path / "work" / "f").read_text() == "theirs\n"
    (tmp_path / "work" / "f").write_text("old\n")
    write(surface, "mine")
    assert (tmp_path / "work" / "f").read_text() == "new\n"


def test_what_was_seen_takes_bounded_memory_and_the_newest_is_kept() -> None:
    sightings = SeenFiles(most=100)
    for number in range(1000):
        sightings.read("mine", f"f{number}", OLD, sightings.begin_read())
        sightings.wrote("theirs", {f"g{number}": NEW}, {})
    assert len(sightings) <= 200
    assert sightings.last("mine", "f999") == (OLD,)
    assert sightings.last("theirs", "g999") == (NEW,)
    assert sightings.last("mine", "f0") is None


def test_a_read_is_written_down_by_the_next_change_that_is_decided(
    surface: WriteSurface, tmp_path: Path
) -> None:
    """A change that was planned and came to nothing has written nothing down."""
    tools = named(surface)
    run(tools, "read", {"path": "f"}, "mine", None)
    with pytest.raises(Refused):
        run(tools, "edit", {"path": "f", "edits": [{"old": "nowhere", "new": "x"}]}, "theirs", None)
    run(tools, "safe_write", {"path": "g", "content": "g"}, "theirs", None)
    assert surface.service.journal.last_seen("mine", "f") == (bytes.fromhex(OLD),)


def test_the_hash_that_read_gives_is_of_the_bytes_that_it_gives(
    surface: WriteSurface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program writes into the file while it is read."""
    file = tmp_path / "work" / "f"
    pread = os.pread
    edits = iter([b"now\n"])

    def edited_after(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        if data == b"old\n":
            for edit in edits:
                file.write_bytes(edit)
        return data

    for module in (digest, fingerprint, contents):
        monkeypatch.setattr(module, "pread", edited_after)
    answer = run(named(surface), "read", {"path": "f"}, "mine", None)
    assert file.read_bytes() == b"now\n"
    assert answer["sha256"] == hashlib.sha256(answer["content"].encode()).hexdigest()
