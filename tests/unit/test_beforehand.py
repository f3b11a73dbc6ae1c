"""A large file made ready before it is decided about: for its own directory alone, and otherwise never there."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.model.fault_points import arm
from perdure.storage.direct import PIECE
from perdure.storage.files import unnamed
from perdure.storage.files.pending import PendingFile
from perdure.surfaces.write import beforehand
from perdure.surfaces.write.beforehand import Beforehand
from perdure.surfaces.write.confine import Place, Workspace

pytestmark = pytest.mark.skipif(not unnamed._TMPFILE, reason="this system has no files without a name")
DATA = os.urandom(PIECE + 77)
SHA256 = "0" * 64


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    found = Workspace([tmp_path])
    yield found
    arm("")
    found.close()


@pytest.fixture(autouse=True)
def nothing_stays_open(workspace: Workspace) -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def at(workspace: Workspace, path: str) -> Callable[[], Place]:
    return lambda: workspace.locate(path)


def made_ready(find: Callable[[], Place]) -> Beforehand:
    ready = Beforehand(find, len(DATA))
    for size in (4096, PIECE, len(DATA)):
        ready.reach(memoryview(DATA)[:size])
    ready.end()
    return ready


def closed(ready: Beforehand) -> None:
    ready.close()
    ready._filling.result()


def taken(ready: Beforehand, workspace: Workspace, path: str, *, is_new: bool = True) -> int | None:
    with workspace.locate(path) as place:
        return ready.take(place.dir_fd, is_new=is_new)


def test_it_is_taken_once_and_becomes_the_file_without_being_written_again(
    workspace: Workspace, tmp_path: Path
) -> None:
    ready = made_ready(at(workspace, "here/f"))
    with workspace.locate("here/f") as place:
        fd = ready.take(place.dir_fd, is_new=True)
        assert fd is not None
        assert ready.take(place.dir_fd, is_new=True) is None
        assert os.listdir(tmp_path / "here") == []
        arm("write.chunk=eio")
        with PendingFile(place.dir_fd, "f", filled=fd) as file:
            file.write_whole(DATA, SHA256)
            landed = file.create()
    closed(ready)
    assert (landed.size, landed.sha256) == (len(DATA), SHA256)
    assert (tmp_path / "here" / "f").read_bytes() == DATA
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "here" / "f").stat().st_mode) == 0o666 & ~mask


def test_nobody_else_may_read_what_is_to_replace_a_file(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "here" / "f").write_bytes(b"old")
    ready = made_ready(at(workspace, "here/f"))
    fd = taken(ready, workspace, "here/f", is_new=False)
    assert fd is not None
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600
    os.close(fd)
    closed(ready)
    assert (tmp_path / "here" / "f").read_bytes() == b"old"


def test_it_is_for_no_other_directory_and_for_no_other_kind_of_change(
    workspace: Workspace, tmp_path: Path
) -> None:
    ready = made_ready(at(workspace, "here/f"))
    assert taken(ready, workspace, "there/f") is None
    assert taken(ready, workspace, "here/f", is_new=False) is None
    (tmp_path / "here").rename(tmp_path / "moved")
    (tmp_path / "here").mkdir()
    assert taken(ready, workspace, "here/f") is None
    closed(ready)
    assert not any(any(path.iterdir()) for path in tmp_path.iterdir())


def test_it_has_the_group_that_its_directory_gives(workspace: Workspace, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives a directory to any group")
    os.chown(tmp_path / "here", -1, 12345)
    os.chmod(tmp_path / "here", 0o2775)
    ready = made_ready(at(workspace, "here/f"))
    fd = taken(ready, workspace, "here/f")
    assert fd is not None
    assert os.fstat(fd).st_gid == 12345
    os.close(fd)
    closed(ready)


@pytest.mark.parametrize("path", ["absent/f", "../f", ".git/f", "here"])
def test_where_nothing_can_be_made_unseen_nothing_is(workspace: Workspace, tmp_path: Path, path: str) -> None:
    ready = made_ready(at(workspace, path))
    assert taken(ready, workspace, "here/f") is None
    closed(ready)
    assert not any(any(found.iterdir()) for found in tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["open_temp=eio", "temp_created=eio", "chunk=enospc", "chunk=short"])
def test_a_disk_that_fails_is_left_to_whoever_writes_in_earnest(workspace: Workspace, fault: str) -> None:
    arm(f"write.{fault}")
    ready = made_ready(at(workspace, "here/f"))
    fd = taken(ready, workspace, "here/f")
    assert (fd is not None) == (fault == "chunk=short")
    if fd is not None:
        assert os.pread(fd, len(DATA) + 1, 0) == DATA
        os.close(fd)
    closed(ready)


@pytest.mark.parametrize("error", [None, errno.EIO])
def test_it_takes_no_room_from_what_is_kept(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    def full(fd: int) -> os.statvfs_result:
        if error is not None:
            raise OSError(error, "")
        return os.statvfs_result((4096, 4096, 9, 9, 2 * len(DATA) // 4096, 9, 9, 9, 0, 255))

    monkeypatch.setattr(beforehand.os, "fstatvfs", full)
    ready = made_ready(at(workspace, "here/f"))
    assert taken(ready, workspace, "here/f") is None
    closed(ready)
