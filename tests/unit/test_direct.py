"""Contents past the page cache: the same bytes in the file, whatever the file system or the size allows."""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.model.envelope import ToolError
from perdure.model.fault_points import arm
from perdure.storage import direct
from perdure.storage.blobs import Blobs
from perdure.storage.direct import DirectFile

SIZES = (0, 1, 4095, 4096, 4097, direct.PIECE - 1, direct.PIECE, direct.PIECE + 1, 3 * direct.PIECE + 777)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    arm("")


def data_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_what_is_there(fd: int, size: int) -> None:
    with DirectFile(fd, "blob.chunk") as file:
        file.write(data_of(size))
    assert os.pread(fd, size + 1, 0) == data_of(size)
    assert not fcntl.fcntl(fd, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0)


@pytest.mark.parametrize("first", [4096, direct.PIECE, 5000])
def test_pieces_follow_each_other_aligned_or_not(fd: int, first: int) -> None:
    data = data_of(2 * direct.PIECE + 99)
    with DirectFile(fd, "blob.chunk") as file:
        file.write(data[:first])
        file.write(data[first:])
    assert os.pread(fd, len(data) + 1, 0) == data


@pytest.mark.parametrize("size", SIZES)
def test_memory_that_is_aligned_is_written_from_where_it_is(
    fd: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_stages", None)
    with mmap.mmap(-1, size + 1) as memory, memoryview(memory) as whole:
        whole[:size] = data_of(size)
        with DirectFile(fd, "blob.chunk") as file, whole[:4096] as first, whole[4096:size] as rest:
            file.write(first[:size])
            file.write(rest)
    assert os.pread(fd, size + 1, 0) == data_of(size)


def test_memory_that_is_not_aligned_is_written_in_the_ordinary_way(fd: int) -> None:
    data = data_of(2 * direct.PIECE)
    with DirectFile(fd, "blob.chunk") as file:
        file.write(memoryview(b"x" + data)[1:])
    assert os.pread(fd, len(data) + 1, 0) == data


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_short_write_goes_on_in_the_ordinary_way(fd: int, at: int) -> None:
    data = data_of(2 * direct.PIECE + 99)
    arm(f"blob.chunk=short@{at}")
    with DirectFile(fd, "blob.chunk") as file:
        file.write(data)
    assert os.pread(fd, len(data) + 1, 0) == data


def test_a_file_system_without_it_is_written_through_its_cache(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    data = data_of(direct.PIECE + 99)
    monkeypatch.setattr(direct.fcntl, "fcntl", refused)
    with DirectFile(fd, "blob.chunk") as file:
        assert not file.is_direct
        file.write(data)
    assert os.pread(fd, len(data) + 1, 0) == data


def test_a_device_that_refuses_it_later_is_written_through_its_cache(
    fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def picky(target: int, data: bytes) -> int:
        if fcntl.fcntl(target, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0):
            raise OSError(22, "Invalid argument")
        return write(target, data)

    data = data_of(direct.PIECE + 99)
    monkeypatch.setattr(os, "write", picky)
    with DirectFile(fd, "blob.chunk") as file:
        file.write(data)
    assert os.pread(fd, len(data) + 1, 0) == data


FORKED = """
import os, sys
from perdure.storage.direct import PIECE, DirectFile

def write(name, data):
    with open(name, "wb") as made, DirectFile(made.fileno(), "blob.chunk") as file:
        file.write(data)

write("warm", bytes(PIECE))
children = []
for number in range(4):
    if not (child := os.fork()):
        for turn in range(20):
            write(f"{number}-{turn}", bytes([number]) * PIECE)
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_processes_that_were_forked_do_not_write_each_others_contents(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED], cwd=tmp_path, check=True, timeout=60)
    for number in range(4):
        for turn in range(20):
            assert set((tmp_path / f"{number}-{turn}").read_bytes()) == {number}


def test_an_arriving_blob_counts_when_it_is_put_and_leaves_nothing_otherwise(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    data = data_of(3 * direct.PIECE + 99)
    sha256 = hashlib.sha256(data).hexdigest()
    arriving = blobs.arriving()
    assert arriving.put(sha256) is None
    for size in (direct.PIECE, 2 * direct.PIECE, len(data)):
        arriving.reach(memoryview(data)[:size])
    assert list(blobs) == []
    found = arriving.put(sha256)
    arriving.close()
    assert found is not None
    assert [blob.sha256 for blob in blobs] == [found.sha256]
    with blobs.open(found.sha256, size=len(data), verify=True) as file:
        assert file.read() == data
    given_up = blobs.arriving()
    given_up.reach(memoryview(data)[: direct.PIECE])
    given_up.close()
    assert len(os.listdir(tmp_path / "blobs")) == 1


def test_a_disk_that_fails_under_an_arriving_blob_is_told_when_it_is_put(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    data = data_of(2 * direct.PIECE)
    arriving = blobs.arriving()
    arriving.reach(memoryview(data))
    arm("blob.before_fsync=eio")
    with pytest.raises(ToolError):
        arriving.put(hashlib.sha256(data).hexdigest())
    arriving.close()
    arm("")
    assert blobs.put(data).size == len(data)
