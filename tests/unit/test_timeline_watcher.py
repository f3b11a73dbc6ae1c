"""File events of a workspace: every change made before a call of `drain` is in its answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.workspace.timeline import watcher
from perdure.workspace.timeline.watcher import FileWatcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "cookies").mkdir()
    return tmp_path / "work"


@pytest.fixture
def watched(root: Path) -> Iterator[FileWatcher]:
    opened = FileWatcher(str(root), ["", "src"], str(root.parent / "cookies"))
    yield opened
    opened.close()


def test_nothing_has_changed(watched: FileWatcher) -> None:
    assert watched.drain() == set()


def test_each_change_is_told_once(root: Path, watched: FileWatcher) -> None:
    for number in range(50):
        (root / "src" / f"f{number}").write_text("a")
        assert f"src/f{number}" in (watched.drain() or set())
    assert watched.drain() == set()


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("echo b > a", "a"),
        ("rm a", "a"),
        ("mv a b", "b"),
        ("mv a b", "a"),
        ("chmod 600 a", "a"),
        ("ln -s a link", "link"),
        ("mkdir folder", "folder"),
        ("touch 'new\nline'", "new\nline"),
        ("cp a src/copy", "src/copy"),
    ],
)
def test_what_a_shell_does_is_seen(root: Path, command: str, path: str) -> None:
    (root / "a").write_text("a")
    opened = FileWatcher(str(root), ["", "src"], str(root.parent / "cookies"))
    subprocess.run(command, shell=True, cwd=root, check=True)
    assert path in (opened.drain() or set())
    opened.close()


def test_a_new_folder_is_seen_and_not_watched(root: Path, watched: FileWatcher) -> None:
    (root / "new").mkdir()
    assert watched.drain() == {"new"}
    (root / "new" / "file").write_text("a")
    assert watched.drain() == set()


def test_a_folder_that_a_link_leads_to_is_not_watched(root: Path) -> None:
    (root.parent / "outside").mkdir()
    (root / "link").symlink_to(root.parent / "outside")
    opened = FileWatcher(str(root), ["", "src"], str(root.parent / "cookies"))
    (root.parent / "outside" / "file").touch()
    assert opened.drain() == set()
    opened.close()


def test_a_folder_that_is_gone_is_left_out(root: Path) -> None:
    opened = FileWatcher(str(root), ["", "gone"], str(root.parent / "cookies"))
    (root / "a").touch()
    assert opened.drain() == {"a"}
    opened.close()


def test_too_many_changes_count_as_unknown(
    root: Path, watched: FileWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "MOST_PATHS", 10)
    for number in range(20):
        (root / f"f{number}").touch()
    assert watched.drain() is None
    assert watched.drain() == set()


def test_a_cookie_that_never_arrives_is_not_waited_for_for_ever(
    root: Path, watched: FileWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookies = root.parent / "cookies"
    os.rename(cookies, root.parent / "moved")
    cookies.mkdir()
    monkeypatch.setattr(watcher, "DRAIN_S", 0.05)
    assert watched.drain() is None


def test_no_cookie_is_left(root: Path, watched: FileWatcher) -> None:
    watched.drain()
    assert os.listdir(root.parent / "cookies") == []


def test_a_name_that_is_not_utf_8_counts_as_unknown(root: Path, watched: FileWatcher) -> None:
    with open(os.path.join(os.fsencode(root), b"latin-\xe9"), "wb"):
        pass
    assert watched.drain() is None
    (root / "a").touch()
    assert "a" in (watched.drain() or set())
