"""What a session has last seen of a file, when its calls overlap."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.power.driver import Refused, named, run, write_surface
from perdure.model.fault_points import arm
from perdure.surfaces.write.surface import WriteSurface

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
    since = service.looking()
    write(surface, "mine")
    service.saw("mine", "f", OLD, since)
    assert service.last_seen("mine", "f") == (NEW,)


def test_a_read_that_began_after_it_does(surface: WriteSurface) -> None:
    service = surface.service
    write(surface, "mine")
    service.saw("mine", "f", OLD, service.looking())
    assert service.last_seen("mine", "f") == (OLD,)


def test_the_writes_of_others_do_not_make_a_read_newer_than_it_is(surface: WriteSurface) -> None:
    service = surface.service
    since = service.looking()
    write(surface, "theirs")
    service.saw("mine", "f", OLD, since)
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
