"""What fails after the answer, or beside it: settling, removing what is left over, saying that nothing happened."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from write_tools import Tools

from harness.crash.write_kinds import found_in
from harness.store_location import store_of
from perdure.platform import directories, fault_points
from perdure.storage.errors import JournalError
from perdure.storage.journal import Filter
from perdure.surfaces.write import transaction
from perdure.workspace import settler, sync_pass
from perdure.workspace.sync_pass import AppliedChanges


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(settler, "SETTLE_AFTER_S", 0.01)
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def tools(workspace: Path) -> Iterator[Tools]:
    opened = Tools(workspace)
    yield opened
    fault_points.arm("")
    opened.close()


@pytest.fixture
def successor(workspace: Path) -> Iterator[Callable[[], Tools]]:
    """Another worker on the same workspace, which recovers it as if the first one were dead."""
    opened: list[Tools] = []

    def start() -> Tools:
        opened.append(Tools(workspace))
        assert opened[-1].service.journal.intents() == []
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def write(tools: Tools, path: str, content: str) -> str:
    arguments = {"path": path, "content": content, "mode": "overwrite", "force": True}
    done, told = tools.use("safe_write", arguments)
    assert done, told
    return str(told["journal_id"])


def settle(tools: Tools, *open_ids: str) -> None:
    """Until only these are open. What is settled is written down with the next write, so there must be one."""
    deadline = time.monotonic() + 20
    while True:
        last = write(tools, "other", "x")
        intents = {str(intent.row.seq) for intent in tools.service.journal.intents()}
        if intents - {last} <= set(open_ids):
            assert set(open_ids) <= intents
            return
        assert time.monotonic() < deadline, intents
        time.sleep(0.02)


def once(real: Callable[..., Any], fails: Callable[..., bool]) -> Callable[..., Any]:
    """The first time that `fails` says so, an input/output error; else the real thing."""
    failed = False

    def call(*given: Any, **named: Any) -> Any:
        nonlocal failed
        if not failed and fails(*given, **named):
            failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*given, **named)

    return call


def test_a_change_that_was_never_settled_does_not_come_back_over_a_later_one(
    tools: Tools, workspace: Path, successor: Callable[[], Tools], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tools, "f", "one\n")
    settle(tools)
    monkeypatch.setattr(AppliedChanges, "sync", _failing_for(AppliedChanges.sync, "two\n"))
    second = write(tools, "f", "two\n")
    write(tools, "f", "one\n")
    settle(tools, second)

    successor()

    assert (workspace / "f").read_text() == "one\n"


def _failing_for(real: Callable[..., Any], content: str) -> Callable[..., Any]:
    def sync(self: AppliedChanges, synced: Any) -> None:
        if any(c.after is not None and c.after.data == content.encode() for c in self._changes):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(self, synced)

    return sync


def test_a_file_whose_sync_fails_is_written_again_and_not_only_synced_again(
    tools: Tools, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped its pages: a second sync of the same file would succeed without them."""
    (workspace / "f").write_text("old\n")
    (workspace / "f").chmod(0o751)
    synced: list[int] = []

    def failing(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(sync_pass, "sync_file", failing)
        write(tools, "f", "new\n")
        deadline = time.monotonic() + 20
        while not synced or (workspace / "f").stat().st_ino == synced[0]:
            assert time.monotonic() < deadline, "it was not written again"
            time.sleep(0.01)

    assert (workspace / "f").read_text() == "new\n"
    assert (workspace / "f").stat().st_mode & 0o777 == 0o751
    settle(tools)


def test_of_many_files_only_the_one_whose_sync_fails_is_written_again(
    tools: Tools, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [{"op": "write", "path": f"f{number}", "content": f"{number}\n"} for number in range(40)]
    assert tools.use("transaction", {"ops": ops})[0]
    inodes = {file.name: file.stat().st_ino for file in workspace.iterdir()}
    synced: list[int] = []
    sync_file = sync_pass.sync_file

    def failing(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        if synced[-1] == inodes["f30"]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync_file(fd)

    monkeypatch.setattr(sync_pass, "sync_file", failing)
    settle(tools)

    assert sorted(set(synced) & set(inodes.values())) == sorted(inodes.values())
    assert {name for name, inode in inodes.items() if (workspace / name).stat().st_ino != inode} == {"f30"}
    assert (workspace / "f30").read_text() == "30\n"


def test_a_displaced_file_that_could_not_be_unlinked_does_not_stay(
    tools: Tools, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("old\n")
    real = once(os.unlink, lambda name, **_: str(name).startswith(".perdure~x"))
    monkeypatch.setattr(directories, "unlink", real)
    write(tools, "d/f", "new\n")
    settle(tools)
    assert found_in(workspace / "d") == ({"f": (0o644, b"new\n")}, [])


def test_a_refusal_that_the_journal_could_not_take_down_is_taken_down_with_the_next_write(
    tools: Tools, workspace: Path, successor: Callable[[], Tools], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tools, "other", "x")
    journal = tools.service.journal
    transact, calls = journal.transact, 0

    def failing(work: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise JournalError("journal_io", errno=errno.ENOSPC)
        return transact(work)

    with monkeypatch.context() as patched:
        patched.setattr(journal, "transact", failing)
        fault_points.arm("write.before_create=enospc")
        done, told = tools.use("safe_write", {"path": "f", "content": "never\n"})
        fault_points.arm("")
    assert not done
    assert (told["error"], told["draft"]) == ("quota_exceeded", None)
    assert calls > 1

    write(tools, "other", "y")
    successor()

    assert not (workspace / "f").exists()
    assert tools.use("history", {"path": "f"})[1].get("versions", []) == []


def test_a_session_that_failed_to_write_may_try_again(tools: Tools, workspace: Path) -> None:
    """What it did not write it has not seen: the stale guard must not take the file's old content for news."""
    (workspace / "f").write_text("one\n")
    fault_points.arm("write.before_exchange=enospc")
    assert not tools.use("safe_write", {"path": "f", "content": "two\n", "mode": "overwrite"})[0]
    fault_points.arm("")
    done, told = tools.use("safe_write", {"path": "f", "content": "two\n", "mode": "overwrite"})
    assert done, told


def test_a_recovery_that_may_not_write_leaves_the_change_to_the_next_one(
    tools: Tools, workspace: Path, successor: Callable[[], Tools]
) -> None:
    """As when the directory is read-only for a while: nothing is given up, and the other files are served."""
    (workspace / "f").write_text("old\n")
    write(tools, "f", "new\n")
    # As if it had been killed before anything landed.
    (workspace / "f").write_text("old\n")
    (store_of(workspace, workspace.parent / "home") / "landed").write_text("")
    fault_points.arm("write.open_temp=erofs")
    blocked = Tools(workspace)
    assert [intent.row.path for intent in blocked.service.journal.intents()] == ["f"]
    fault_points.arm("")
    blocked.close()
    assert (workspace / "f").read_text() == "old\n"

    successor()

    assert (workspace / "f").read_text() == "new\n"


@pytest.mark.parametrize(
    "operation", [{"op": "delete", "path": "f"}, {"op": "write", "path": "g", "content": "new\n"}]
)
def test_a_transaction_is_made_again_where_its_store_is_removed_meanwhile(
    tools: Tools, workspace: Path, monkeypatch: pytest.MonkeyPatch, operation: dict[str, str]
) -> None:
    (workspace / "f").write_text("old\n")
    write(tools, "other", "x")
    transacted, removed = transaction._transacted, False

    def remove_store_first(*given: Any) -> dict[str, Any]:
        nonlocal removed
        if not removed:
            shutil.rmtree(store_of(workspace, workspace.parent / "home"))
            removed = True
        return transacted(*given)

    monkeypatch.setattr(transaction, "_transacted", remove_store_first)

    done, told = tools.use("transaction", {"ops": [operation]})

    assert done, told
    assert [row.path for row in tools.service.journal.rows(Filter(), 5)] == [operation["path"]]


def test_an_operation_whose_content_cannot_be_kept_is_named(tools: Tools) -> None:
    ops = [{"op": "write", "path": name, "content": name * size} for name, size in (("a", 1), ("b", 200_000))]
    fault_points.arm("blob.open_temp=enospc")

    done, told = tools.use("transaction", {"ops": ops})

    assert not done
    assert (told["error"], told["context"]["operation"], told["context"]["path"]) == (
        "quota_exceeded",
        1,
        "b",
    )
    assert "ops[1]: the disk is full" in told["context"]["message"]


def test_a_journal_that_fails_in_a_transaction_names_no_operation(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls of other sessions in the same round fail with it: they must not be told a path of this one."""
    write(tools, "other", "x")

    def fail(*_: Any, **__: Any) -> None:
        raise JournalError("journal_io", errno=errno.ENOSPC)

    monkeypatch.setattr(tools.service.journal, "append", fail)
    done, told = tools.use("transaction", {"ops": [{"op": "write", "path": "f", "content": "new\n"}]})

    assert not done
    assert (told["error"], told["context"]["reason"], told["context"]["of"]) == (
        "quota_exceeded",
        "no_space",
        "journal",
    )
    assert "operation" not in told["context"]
    assert "path" not in told["context"]
