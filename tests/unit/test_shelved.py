"""What takes long to make is made once, and again when what was kept is not what it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.risk import engine
from perdure.risk.candidates import Entry
from perdure.risk.engine import Prefilter
from perdure.storage.disk_cache import Shelved
from perdure.storage.user_dirs import write_private

ENTRIES = [Entry(b"alpha"), Entry(b"Beta", True)]
TEXT = b"an alpha, a BETA"
HITS = [(0, 3), (1, 12)]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setattr(engine, "cache", Shelved("gate"))
    return tmp_path / "cache"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    compile_patterns = engine.compile_patterns

    def count(patterns: list[bytes], flags: list[int]) -> object:
        made.append(len(patterns))
        return compile_patterns(patterns, flags)

    monkeypatch.setattr(engine, "compile_patterns", count)
    return made


def test_a_prefilter_is_compiled_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    for _ in range(3):
        assert list(Prefilter(ENTRIES).hits(TEXT)) == HITS
    assert made == [2]
    (file,) = kept.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(Prefilter(ENTRIES[:1]).hits(TEXT)) == HITS[:1]
    assert made == [2, 1]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 500])
def test_a_damaged_one_is_compiled_again(kept: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    Prefilter(ENTRIES)
    (file,) = kept.iterdir()
    file.write_bytes(damage)
    made = counted(monkeypatch)
    assert list(Prefilter(ENTRIES).hits(TEXT)) == HITS
    assert list(Prefilter(ENTRIES).hits(TEXT)) == HITS
    assert made == [2]


def test_what_is_whole_and_not_a_database_is_compiled_again(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Prefilter(ENTRIES)
    (file,) = kept.iterdir()
    Shelved("gate").save(file.name.removeprefix("gate-"), b"something else")
    assert list(Prefilter(ENTRIES).hits(TEXT)) == HITS


def test_where_nothing_can_be_kept_it_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(engine, "cache", Shelved("gate"))
    assert list(Prefilter(ENTRIES).hits(TEXT)) == HITS


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "in it").write_text("")
    with pytest.raises(OSError, match="taken"):
        write_private(str(tmp_path / "taken"), b"data")
    assert os.listdir(tmp_path) == ["taken"]
