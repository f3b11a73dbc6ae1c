"""What takes long to make is made once, and again when what was kept is not what it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.risk import gate
from perdure.risk.gate import Entry
from perdure.storage.disk_cache import Shelved
from perdure.storage.user_dirs import write_private

pytest.importorskip("hyperscan")
ENTRIES = [Entry(b"alpha"), Entry(b"Beta", True)]
TEXT = b"an alpha, a BETA"
HITS = [(0, 3), (1, 12)]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    monkeypatch.setattr(gate, "shelf", Shelved("gate"))
    return tmp_path / "cache"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    compiled = gate._compiled

    def noted(hyperscan: object, entries: list[Entry]) -> object:
        made.append(len(entries))
        return compiled(hyperscan, entries)

    monkeypatch.setattr(gate, "_compiled", noted)
    return made


def test_a_gate_is_compiled_once(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = counted(monkeypatch)
    for _ in range(3):
        assert list(gate.build(ENTRIES, "hyperscan").hits(TEXT)) == HITS
    assert made == [2]
    (file,) = kept.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(gate.build(ENTRIES[:1], "hyperscan").hits(TEXT)) == HITS[:1]
    assert made == [2, 1]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 500])
def test_a_damaged_one_is_compiled_again(kept: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    gate.build(ENTRIES, "hyperscan")
    (file,) = kept.iterdir()
    file.write_bytes(damage)
    made = counted(monkeypatch)
    assert list(gate.build(ENTRIES, "hyperscan").hits(TEXT)) == HITS
    assert list(gate.build(ENTRIES, "hyperscan").hits(TEXT)) == HITS
    assert made == [2]


def test_what_is_whole_and_not_a_gate_is_compiled_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.build(ENTRIES, "hyperscan")
    (file,) = kept.iterdir()
    Shelved("gate").save(file.name.removeprefix("gate-"), b"something else")
    assert list(gate.build(ENTRIES, "hyperscan").hits(TEXT)) == HITS


def test_where_nothing_can_be_kept_it_is_compiled_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(gate, "shelf", Shelved("gate"))
    assert list(gate.build(ENTRIES, "hyperscan").hits(TEXT)) == HITS


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "in it").write_text("")
    with pytest.raises(OSError, match="taken"):
        write_private(str(tmp_path / "taken"), b"data")
    assert os.listdir(tmp_path) == ["taken"]
