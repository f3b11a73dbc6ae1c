"""Many landed files made durable in one pass: each once, by its last change, and what fails stays open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.workspace import settler as settler_module
from perdure.workspace import sync_pass
from perdure.workspace.apply import FileChange
from perdure.workspace.contents import Content
from perdure.workspace.paths.roots import Roots
from perdure.workspace.settler import Settler
from perdure.workspace.sync_pass import AppliedChanges, SyncPass


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Roots]:
    (tmp_path / "d").mkdir()
    opened = Roots((str(tmp_path),))
    yield opened
    opened.close()


def change(workspace: Roots, path: str, *, gone: bool = False) -> FileChange:
    with workspace.locate(path) as place:
        return FileChange(place, None, None, None if gone else Content("", 1))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which files were synced, directories apart."""
    found: list[int] = []
    monkeypatch.setattr(sync_pass, "sync_file", lambda fd: found.append(os.fstat(fd).st_ino))
    return found


def test_a_file_that_changed_several_times_is_synced_once_and_by_its_last_change(
    workspace: Roots, tmp_path: Path, synced: list[int]
) -> None:
    (tmp_path / "d" / "f").write_text("now")
    last, first = change(workspace, "d/f"), change(workspace, "d/f")
    syncs = SyncPass()
    for one in (last, first):
        syncs.begin(workspace, one)
    syncs.sync_files(workspace, [first], None)  # type: ignore[arg-type]
    assert synced == []
    syncs.sync_files(workspace, [last], None)  # type: ignore[arg-type]
    assert synced == [(tmp_path / "d" / "f").stat().st_ino]
    syncs.close()


def test_a_file_whose_last_change_removed_it_needs_no_sync_of_its_own(
    workspace: Roots, synced: list[int]
) -> None:
    removal, first = change(workspace, "d/f", gone=True), change(workspace, "d/f")
    syncs = SyncPass()
    for one in (removal, first):
        syncs.begin(workspace, one)
        syncs.sync_files(workspace, [one], None)  # type: ignore[arg-type]
    assert synced == []
    syncs.close()


def test_more_files_and_directories_than_may_be_open_are_all_synced_and_closed(
    workspace: Roots, tmp_path: Path, synced: list[int]
) -> None:
    changes = []
    for number in range(sync_pass.OPEN_MAX + 20):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "f").write_text("x")
        changes.append(change(workspace, f"d{number}/f"))
    before = len(os.listdir("/proc/self/fd"))
    syncs = SyncPass()
    for one in changes:
        syncs.begin(workspace, one)
    assert len(os.listdir("/proc/self/fd")) - before <= 2 * sync_pass.OPEN_MAX
    syncs.sync_files(workspace, changes, None)  # type: ignore[arg-type]
    syncs.sync_names(workspace, changes)
    syncs.close()
    assert len(set(synced)) == len(changes)
    assert len(os.listdir("/proc/self/fd")) == before


class Applied(AppliedChanges):
    """A change of one row; `sync` is what its sync does."""

    def __init__(self, seq: int, sync: Callable[[], None]) -> None:
        super().__init__([], [seq], None, None, strict=False)  # type: ignore[arg-type]
        self._sync_once = sync

    def sync(self, syncing: SyncPass) -> None:
        self._sync_once()


def failing() -> None:
    raise OSError


def test_what_cannot_be_synced_is_not_called_durable() -> None:
    settler = Settler(lambda: 0.0)
    settler.add([Applied(1, lambda: None), Applied(2, failing), Applied(3, lambda: None)])
    settler.settle()
    assert sorted(settler.durable()) == [1, 3]
    settler.forget(2)
    assert settler.durable() == ()
    settler.close()


def test_a_pass_is_broken_off_when_somebody_writes_and_the_rest_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settler_module, "SETTLE_AFTER_S", 0.01)
    monkeypatch.setattr(settler_module, "LATEST", 1_000_000)
    monkeypatch.setattr(settler_module, "AT_A_TIME", 10)
    busy: list[int] = []
    settler = Settler(lambda: 0.0 if busy else 60.0)
    settler.add([Applied(seq, lambda seq=seq: busy.append(seq)) for seq in range(1, 31)])  # type: ignore[misc]
    while len(settler.durable()) < 10:
        pass
    settler.close()
    assert busy[:10] == list(range(30, 20, -1)), "the newest first"
    assert sorted(settler.durable()) == list(range(1, 31))


def test_what_has_become_too_much_is_settled_however_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler_module, "SETTLE_AT", 20)
    settler = Settler(lambda: 0.0)
    settler.add([Applied(seq, lambda: None) for seq in range(1, 21)])
    while len(settler.durable()) < 20:
        pass
    settler.close()
