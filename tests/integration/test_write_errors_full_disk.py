"""A disk that is really full, and files that may really not grow: refused in words, nothing torn, and then it goes on."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.crash.write_kinds import contents, found_in
from harness.syscalls.traced_worker import Worker

pytestmark = pytest.mark.thorough

MEGABYTE = 1 << 20
BALLAST = 300_000


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Worker]:
    """A worker whose workspace and journal share a file system of one megabyte, with some ballast on it."""
    (tmp_path / "workspace").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTE}", "tmpfs", str(tmp_path / "workspace")]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    worker = None
    try:
        (tmp_path / "workspace" / "ballast").write_bytes(os.urandom(BALLAST))
        (tmp_path / "workspace" / "stores").mkdir()
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "workspaces").symlink_to(tmp_path / "workspace" / "stores")
        worker = Worker(tmp_path)
        yield worker
    finally:
        if worker is not None:
            worker.client.kill()
        subprocess.run(["umount", str(tmp_path / "workspace")], check=True)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    found = Worker(tmp_path)
    yield found
    found.client.kill()


def files_of(worker: Worker) -> dict[str, bytes]:
    found, left = found_in(worker.workspace / "d")
    assert left == []
    return contents(found)


def inodes_of(worker: Worker) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in (worker.workspace / "d").iterdir()}


def is_unbroken(worker: Worker) -> bool:
    journal = worker.journal()
    try:
        return list(journal.verify()) == []
    finally:
        journal.close()


def assert_no_empty_promise(worker: Worker, envelope: dict[str, Any]) -> None:
    """A draft that is named can be had, now or when there is space again."""
    if envelope["draft"] is not None:
        (worker.workspace / "ballast").unlink(missing_ok=True)
        done, told = worker.use("safe_write", {"path": "d/of-draft", "draft": envelope["draft"]})
        assert done, told


def fill(worker: Worker, content: str) -> tuple[dict[str, bytes], dict[str, Any], str]:
    """Write files until one is refused: those that were done, the refusal, and the path that was refused."""
    written: dict[str, bytes] = {}
    for number in range(1000):
        done, told = worker.use("safe_write", {"path": f"d/{number}", "content": content})
        if not done:
            return written, told, f"d/{number}"
        written[str(number)] = content.encode()
    raise AssertionError("the disk never became full")


INCOMPRESSIBLE = os.urandom(10_000).hex()  # fills the journal as fast as the workspace
COMPRESSIBLE = "x" * 60_000  # the journal takes it, the workspace does not


@pytest.mark.parametrize("content", [INCOMPRESSIBLE, COMPRESSIBLE], ids=["journal full", "workspace full"])
def test_a_full_disk_refuses_in_words_and_works_again_when_there_is_space(tiny: Worker, content: str) -> None:
    written, refused, path = fill(tiny, content)

    assert (refused["error"], refused["reason_hint"]) == ("quota_exceeded", "size_limit")
    assert refused["context"]["reason"] == "no_space"
    assert files_of(tiny) == written
    for _ in range(2):
        # The old content stays through every further try, at whatever size.
        done, told = tiny.use("safe_write", {"path": "d/0", "content": content * 5, "mode": "overwrite"})
        assert not done
        assert told["error"] == "quota_exceeded"
        assert files_of(tiny) == written

    (tiny.workspace / "ballast").unlink()
    done, told = tiny.use("safe_write", {"path": path, "content": content})
    assert done, told
    done, told = tiny.use("safe_write", {"path": "d/0", "content": "small", "mode": "overwrite"})
    assert done, told
    expected = {**written, "0": b"small", path.removeprefix("d/"): content.encode()}
    assert files_of(tiny) == expected
    assert_no_empty_promise(tiny, refused)
    assert is_unbroken(tiny)

    tiny.restart()
    assert tiny.use("journal_tail", {})[0]
    found = files_of(tiny)
    assert {name: found[name] for name in expected} == expected, "a refused write came true"


def test_a_transaction_that_does_not_fit_changes_nothing(tiny: Worker) -> None:
    new, names = "new\n" * 15_000, [str(number) for number in range(10)]
    (tiny.workspace / "d").mkdir()
    for name in names:
        (tiny.workspace / "d" / name).write_text("old\n" * 1000)
    before, inodes = files_of(tiny), inodes_of(tiny)
    ops = [{"op": "write", "path": f"d/{name}", "content": new, "mode": "overwrite"} for name in names]

    done, told = tiny.use("transaction", {"ops": ops})

    assert not done
    assert told["error"] == "quota_exceeded"
    assert files_of(tiny) == before
    assert inodes_of(tiny) == inodes, "some were replaced, and then put back"
    (tiny.workspace / "ballast").unlink()
    done, told = tiny.use("transaction", {"ops": ops[:2]})
    assert done, told
    assert is_unbroken(tiny)


def test_a_file_that_may_not_grow_is_refused_and_the_next_one_is_written(worker: Worker) -> None:
    assert worker.use("safe_write", {"path": "d/f", "content": "old"})[0]
    pid, unlimited = worker.client.pid, resource.prlimit(worker.client.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (500_000, unlimited[1]))

    # A write is cut short first, at the limit, and fails then.
    done, told = worker.use("safe_write", {"path": "d/f", "content": "y" * 1_000_000, "mode": "overwrite"})
    assert not done
    assert (told["error"], told["context"]["reason"]) == ("quota_exceeded", "file_too_large")
    assert told["suggested_action"] == "split"
    assert files_of(worker) == {"f": b"old"}

    # The journal is a file as well, and must not be in doubt when it may not grow either.
    refused = {}
    for number in range(100):
        done, refused = worker.use("safe_write", {"path": f"d/{number}", "content": os.urandom(30_000).hex()})
        if not done:
            break
    assert (refused["error"], refused["context"]["reason"]) == ("quota_exceeded", "file_too_large")

    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    done, told = worker.use("safe_write", {"path": "d/f", "content": "y" * 1_000_000, "mode": "overwrite"})
    assert done, told
    assert files_of(worker)["f"] == b"y" * 1_000_000
    assert is_unbroken(worker)
