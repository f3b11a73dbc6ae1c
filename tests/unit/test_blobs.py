"""Contents by their hash: durable before they count, never shared with a live file, healed when put again."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.platform import fault_points, posix
from perdure.platform import files as platform_files
from perdure.present.tool_errors import tool_error
from perdure.storage.blobs import Blob, Blobs, Source
from perdure.storage.errors import ContentDamaged, FileError, StorageError
from perdure.storage.files import temp_names

CONTENT = bytes(range(256)) * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(params=["nameless", "named"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Blobs]:
    if request.param == "named":
        monkeypatch.setattr(platform_files, "_TMPFILE", 0)
    opened = Blobs(tmp_path / "state" / "blobs")
    yield opened
    opened.close()
    fault_points.arm("")


def reason(error: StorageError) -> str:
    return str(tool_error(error).envelope.context["reason"])


def files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in tmp_path.rglob("*") if path.is_file())


def kept(tmp_path: Path) -> Path:
    return tmp_path / "state" / "blobs" / SHA256


def from_file(tmp_path: Path) -> int:
    (tmp_path / "live").write_bytes(CONTENT)
    return os.open(tmp_path / "live", os.O_RDONLY)


@pytest.mark.parametrize(
    "source",
    [CONTENT, io.BytesIO(CONTENT), [CONTENT[:7], b"", CONTENT[7:]], iter([CONTENT])],
    ids=["bytes", "stream", "pieces", "iterator"],
)
def test_a_content_is_kept_under_its_hash(blobs: Blobs, tmp_path: Path, source: Source) -> None:
    if isinstance(source, io.BytesIO):
        source.seek(0)
    elif not isinstance(source, bytes | list):
        source = iter([CONTENT])

    assert blobs.put(source) == Blob(SHA256, len(CONTENT))

    with blobs.open(SHA256, size=len(CONTENT), verify=True) as file:
        assert file.read() == CONTENT
    assert blobs.has(SHA256)
    assert files(tmp_path) == [kept(tmp_path)]


def test_only_the_owner_can_read_it(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put(CONTENT)

    assert stat.S_IMODE(kept(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(kept(tmp_path).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("way", ["as it comes", "no reflink", "no kernel copy"])
def test_a_kept_file_is_a_copy_that_later_edits_do_not_reach(
    blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "as it comes":
        monkeypatch.setattr(platform_files, "share_blocks", posix.share_blocks)
    if way == "no kernel copy":
        monkeypatch.setattr(platform_files, "copy_range", posix.copy_range)
    fd = from_file(tmp_path)
    os.lseek(fd, 100, os.SEEK_SET)

    assert blobs.put(fd) == Blob(SHA256, len(CONTENT))

    os.close(fd)
    with open(tmp_path / "live", "r+b") as live:
        live.write(b"edited in place")
    assert not os.path.samestat(os.stat(tmp_path / "live"), os.stat(kept(tmp_path)))
    with blobs.open(SHA256, verify=True) as file:
        assert file.read() == CONTENT


def test_an_empty_content_is_a_content(blobs: Blobs, tmp_path: Path) -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    empty = hashlib.sha256().hexdigest()

    assert blobs.put(b"").sha256 == blobs.put(iter([])).sha256 == empty

    os.close(fd)
    with blobs.open(empty, size=0, verify=True) as file:
        assert file.read() == b""


def test_a_damaged_content_is_noticed_and_heals_when_it_is_put_again(blobs: Blobs, tmp_path: Path) -> None:
    blobs.put(CONTENT)
    kept(tmp_path).write_bytes(CONTENT[:-1] + b"!")

    blobs.open(SHA256, size=len(CONTENT)).close()
    with pytest.raises(ContentDamaged) as refused:
        blobs.open(SHA256, verify=True)
    assert (tool_error(refused.value).envelope.error, reason(refused.value)) == (
        "write_corruption",
        "blob_damaged",
    )
    kept(tmp_path).write_bytes(CONTENT[:-1])
    with pytest.raises(ContentDamaged) as refused:
        blobs.open(SHA256, size=len(CONTENT))
    assert reason(refused.value) == "blob_damaged"

    blobs.put(CONTENT)

    blobs.open(SHA256, size=len(CONTENT), verify=True).close()
    assert files(tmp_path) == [kept(tmp_path)]


def test_a_deleted_content_is_gone(blobs: Blobs) -> None:
    blobs.put(CONTENT)

    assert blobs.delete(SHA256)
    assert not blobs.delete(SHA256)
    with pytest.raises(ContentDamaged) as refused:
        blobs.open(SHA256)
    assert reason(refused.value) == "blob_missing"


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "A" * 64, "0" * 63, f"{'0' * 64}\n"])
def test_only_a_hash_names_a_content(blobs: Blobs, name: str) -> None:
    for use in (blobs.open, blobs.delete, blobs.has):
        with pytest.raises(ValueError, match="sha256"):
            use(name)


def test_contents_can_be_counted_and_measured(blobs: Blobs, tmp_path: Path) -> None:
    sizes = {blobs.put(b"x" * n).sha256: n for n in (1, 10, 1000)}
    (tmp_path / "state" / "blobs" / "stray").write_text("not ours")

    assert {blob.sha256: blob.size for blob in blobs} == sizes
    assert blobs.total() == 1011
    assert all(abs(blob.mtime - time.time()) < 60 for blob in blobs)


@pytest.mark.parametrize(
    "where",
    ["open_temp", "temp_created", "chunk", "before_fsync", "before_link", "linked", "before_dir_fsync"],
)
@pytest.mark.parametrize(("error", "kind"), [("enospc", "quota_exceeded"), ("eio", "write_corruption")])
def test_an_error_at_any_step_is_typed_and_leaves_no_litter(
    blobs: Blobs, tmp_path: Path, where: str, error: str, kind: str
) -> None:
    fault_points.arm(f"blob.{where}={error}")
    with pytest.raises(FileError) as refused:
        blobs.put([CONTENT])
    fault_points.arm("")

    assert tool_error(refused.value).envelope.error == kind
    assert files(tmp_path) in ([], [kept(tmp_path)])
    assert blobs.put(CONTENT).sha256 == SHA256


def test_short_writes_go_on_where_they_stopped(blobs: Blobs, tmp_path: Path) -> None:
    fault_points.arm("blob.chunk=short")

    assert blobs.put(CONTENT).sha256 == SHA256


def in_process(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return pid


@pytest.mark.parametrize("where", [name for name in fault_points.names() if name.startswith("blob.")])
def test_a_kill_at_any_step_leaves_a_whole_content_or_none(blobs: Blobs, tmp_path: Path, where: str) -> None:
    fd = from_file(tmp_path)

    def work() -> None:
        fault_points.arm(f"{where}=kill")
        blobs.put(fd)

    assert os.waitstatus_to_exitcode(os.waitpid(in_process(work), 0)[1]) == -signal.SIGKILL
    os.close(fd)
    (tmp_path / "live").unlink()
    alive = tmp_path / "state" / "blobs" / temp_names.fresh("w")
    alive.touch()

    blobs.sweep()

    assert alive.exists()
    alive.unlink()
    assert files(tmp_path) in ([], [kept(tmp_path)])
    for blob in blobs:
        blobs.open(blob.sha256, verify=True).close()


def test_several_processes_may_put_the_same_content(blobs: Blobs, tmp_path: Path) -> None:
    def work() -> None:
        own = Blobs(tmp_path / "state" / "blobs")
        for turn in range(10):
            assert own.put(CONTENT).sha256 == SHA256
            own.put(b"%d" % turn)
            own.open(SHA256, verify=True).close()

    children = [in_process(work) for _ in range(4)]

    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    assert len(list(blobs)) == 11
    assert len(files(tmp_path)) == 11
