"""The walk over a workspace: what it finds, what it never reads, and what happens to files that change under it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.storage.blobs import Blobs
from perdure.storage.errors import FileError
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.storage.timeline import TrackedFile
from perdure.workspace.contents import ContentStore
from perdure.workspace.paths.roots import Roots
from perdure.workspace.timeline import capture, scan
from perdure.workspace.timeline.capture import Captured, ContentReader
from perdure.workspace.timeline.coverage import Coverage
from perdure.workspace.timeline.scan import RACY, Entry, Scan, Scanner
from perdure.workspace.timeline.settings import TimelineSettings

SHA = bytes(32)


@pytest.fixture(params=[True, False], ids=["by_kernel", "by_name"])
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Roots]:
    (tmp_path / "work").mkdir()
    made = Roots([tmp_path / "work"], by_kernel=None if request.param else False)
    yield made
    made.close()


@pytest.fixture
def reader(roots: Roots, tmp_path: Path) -> ContentReader:
    (tmp_path / "store").mkdir()
    journal = SqliteJournal(str(tmp_path / "store"), str(tmp_path / "anchor"))
    return ContentReader(roots, ContentStore(journal, Blobs(tmp_path / "store" / "blobs")), "keep")


def run(roots: Roots, tracked: Mapping[str, TrackedFile] | None = None, **settings: Any) -> Scan:
    return Scanner(roots, Coverage(TimelineSettings(**settings), (".perdure/",)), tracked or {}).run()


def track(entries: list[Entry]) -> dict[str, TrackedFile]:
    """As seen long after they were changed."""
    later = time.time_ns() + 10**12
    return {entry.path: entry.tracked(SHA if entry.kind != "directory" else None, later) for entry in entries}


def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_an_unchanged_workspace_has_no_news(roots: Roots, tmp_path: Path) -> None:
    (work(tmp_path) / "d").mkdir()
    (work(tmp_path) / "d" / "f").write_text("x")
    os.symlink("f", work(tmp_path) / "d" / "l")
    first = run(roots)
    assert sorted((entry.path, entry.kind) for entry in first.new) == [
        ("d", "directory"),
        ("d/f", "file"),
        ("d/l", "link"),
    ]
    again = run(roots, track(first.new))
    assert (again.new, again.differing, again.unread, again.gone, again.left) == ([], [], [], [], [])
    assert again.files == 2


def test_every_kind_of_difference_is_found(roots: Roots, tmp_path: Path) -> None:
    for name in ("content", "mode", "times", "replaced", "gone", "kind", "same"):
        (work(tmp_path) / name).write_text("old")
    tracked = track(run(roots).new)
    root = work(tmp_path)
    (root / "content").write_text("new")
    os.chmod(root / "mode", 0o600)
    os.utime(root / "times", ns=(1, 1))
    (root / "other").write_text("old")
    os.replace(root / "other", root / "replaced")
    (root / "gone").unlink()
    (root / "kind").unlink()
    (root / "kind").mkdir()
    found = run(roots, tracked)
    assert sorted(entry.path for entry in found.differing) == ["content", "kind", "mode", "replaced", "times"]
    assert [known.path for known in found.gone] == ["gone"]


def test_a_file_that_was_changed_as_it_was_read_is_looked_at_again(roots: Roots, tmp_path: Path) -> None:
    (work(tmp_path) / "f").write_text("x")
    (entry,) = run(roots).new
    known = entry.tracked(SHA, time.time_ns())
    assert known.ctime_ns == RACY
    assert [found.path for found in run(roots, {"f": known}).differing] == ["f"]


def test_a_deep_tree(roots: Roots, tmp_path: Path) -> None:
    fd = os.open(work(tmp_path), os.O_RDONLY)
    for _ in range(380):
        os.mkdir("deep-folder", dir_fd=fd)
        inner = os.open("deep-folder", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    found = run(roots)
    assert max(len(entry.path) for entry in found.new) == 380 * len("deep-folder/") + len("leaf")
    assert found.not_covered == []
    assert run(roots, track(found.new)).gone == []


def test_a_folder_that_becomes_a_link_while_it_is_walked_leads_nowhere(
    roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = work(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (root / "d").mkdir()
    (root / "d" / "f").write_text("x")
    real = scan.open_folder

    def replace_first(where: Any, path: str) -> int:
        if path == "d" and not (root / "d").is_symlink():
            os.rename(root / "d", root / "moved")
            os.symlink(tmp_path / "outside", root / "d")
        return real(where, path)

    monkeypatch.setattr(scan, "open_folder", replace_first)
    found = run(roots)
    assert "d/secret" not in {entry.path for entry in found.new}
    assert [(place.path, place.reason) for place in found.not_covered] == [("d", "not_yet")]


def test_a_parent_that_becomes_a_link_before_a_file_is_read(
    roots: Roots, reader: ContentReader, tmp_path: Path
) -> None:
    root = work(tmp_path)
    (root / "d").mkdir()
    (root / "d" / "f").write_text("inside")
    entry = next(entry for entry in run(roots).new if entry.path == "d/f")
    (tmp_path / "outside").mkdir()
    os.link(root / "d" / "f", tmp_path / "outside" / "f")
    os.rename(root / "d", root / "moved")
    os.symlink(tmp_path / "outside", root / "d")
    assert reader.read(entry) is None


def test_what_vanishes_before_it_is_read_is_left_for_later(
    roots: Roots, reader: ContentReader, tmp_path: Path
) -> None:
    (work(tmp_path) / "f").write_text("x")
    os.symlink("x", work(tmp_path) / "l")
    entries = run(roots).new
    for entry in entries:
        os.unlink(work(tmp_path) / entry.path)
    assert [reader.read(entry) for entry in entries] == [None, None]


def test_a_file_that_changes_once_while_it_is_read_is_read_again(
    roots: Roots, reader: ContentReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = work(tmp_path) / "f"
    file.write_text("x")
    (entry,) = run(roots).new
    real, reads = capture.pread, []

    def append_once(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        if not reads:
            with open(file, "a") as more:
                more.write("y")
        reads.append(data)
        return data

    monkeypatch.setattr(capture, "pread", append_once)
    found = reader.read(entry)
    assert isinstance(found, Captured)
    assert found.content.data == b"xy"
    assert found.entry.size == 2


def test_a_file_that_never_stops_changing_is_left_for_later(
    roots: Roots, reader: ContentReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = work(tmp_path) / "f"
    file.write_text("x")
    (entry,) = run(roots).new
    real = capture.pread

    def append(fd: int, size: int, offset: int) -> bytes:
        data = real(fd, size, offset)
        with open(file, "a") as more:
            more.write("y")
        return data

    monkeypatch.setattr(capture, "pread", append)
    assert reader.read(entry) is None


def test_without_descriptors_it_fails_and_takes_no_file_for_unreadable(
    roots: Roots, reader: ContentReader, tmp_path: Path
) -> None:
    (tmp_path / "work" / "file").write_text("x")
    [entry] = run(roots).new
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(FileError):
            run(roots)
        with pytest.raises(FileError):
            reader.read(entry)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_own_folders_and_git_are_never_walked(roots: Roots, tmp_path: Path) -> None:
    root = work(tmp_path)
    for name in (".git", ".perdure", "sub/.git"):
        (root / name).mkdir(parents=True)
        (root / name / "f").write_text("x")
    (root / "tree").mkdir()
    (root / "tree" / ".git").write_text("gitdir: /elsewhere\n")
    found = run(roots)
    assert sorted(entry.path for entry in found.new) == ["sub", "tree"]
    assert {place.path: place.reason for place in found.not_covered} == {
        ".git": "git",
        ".perdure": "perdure",
        "sub/.git": "git",
        "tree/.git": "git",
    }


def test_exclude_of_the_repository_counts(roots: Roots, tmp_path: Path) -> None:
    root = work(tmp_path)
    (root / ".git" / "info").mkdir(parents=True)
    (root / ".git" / "info" / "exclude").write_text("*.bin\n")
    (root / "large.bin").write_bytes(bytes(70_000))
    (root / "small.bin").write_bytes(b"x")
    found = run(roots)
    assert [entry.path for entry in found.new] == ["small.bin"]
    assert ("large.bin", "ignored") in [(place.path, place.reason) for place in found.not_covered]


def test_a_covered_file_stays_covered_when_a_later_pattern_matches_it(roots: Roots, tmp_path: Path) -> None:
    root = work(tmp_path)
    (root / "data.bin").write_bytes(bytes(70_000))
    tracked = track(run(roots).new)
    (root / ".gitignore").write_text("*.bin\n")
    (root / "later.bin").write_bytes(bytes(70_000))
    found = run(roots, tracked)
    assert (found.left, found.gone) == ([], [])
    assert [(place.path, place.reason) for place in found.not_covered] == [("later.bin", "ignored")]


def test_what_the_settings_ignore_from_now_on_is_left_without_being_gone(
    roots: Roots, tmp_path: Path
) -> None:
    root = work(tmp_path)
    (root / "logs").mkdir()
    (root / "logs" / "a").write_text("x")
    tracked = track(run(roots).new)
    found = run(roots, tracked, ignore=("logs/",))
    assert (sorted(found.left), found.gone) == (["logs", "logs/a"], [])


def test_folders_that_there_was_no_time_for_are_named(roots: Roots, tmp_path: Path) -> None:
    (work(tmp_path) / "d" / "e").mkdir(parents=True)
    coverage = Coverage(TimelineSettings())
    found = Scanner(roots, coverage, {}, time.monotonic() - 1, lambda _: False).run()
    assert [entry.path for entry in found.new] == ["d"]
    assert [(place.path, place.reason, place.files) for place in found.not_covered] == [
        ("d", "not_yet", None)
    ]


def test_a_second_root_inside_the_first_has_its_own_names(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "f").write_text("x")
    (tmp_path / "a" / "b" / "g").write_text("x")
    roots = Roots([tmp_path / "a", tmp_path / "a" / "b"])
    assert {entry.path for entry in run(roots).new} == {"f", "b", "@1/g"}
    roots.close()
