"""Where the store of a workspace is, and that it is neither lost nor taken from somebody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from compiled_rules import put_compiled_rules
from harness.previous_version import unpack
from harness.store_location import store_of
from perdure.platform.file_systems import type_in
from perdure.testing.raw_client import RawClient
from testbed import Bed

FIXTURES = Path(__file__).parents[1] / "fixtures" / "previous_version"


class Place:
    """A home with a workspace, and processes that work there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PERDURE_", "RW_", "XDG_"))},
            "HOME": str(folder),
            "PERDURE_HOME": str(self.home),
        }
        put_compiled_rules(self.home)
        self._clients: list[RawClient] = []

    @property
    def store(self) -> Path:
        return store_of(self.workspace, self.home)

    def worker(self, **env: str) -> RawClient:
        command = [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(self.workspace)]
        client = RawClient(command, env={**self.environ, **env})
        self._clients.append(client)
        client.initialize()
        return client

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "perdure", *words, "--workspace", str(self.workspace)]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    def write(self, path: str, content: str = "x\n") -> None:
        client = self.worker()
        use(client, "safe_write", path=path, content=content)
        client.close()

    def written(self) -> list[str]:
        """The paths of all changes, as the journal tells them."""
        found = json.loads(self.run("journal", "--json").stdout)
        return [entry["path"] for entry in found["entries"]]

    def close(self) -> None:
        for client in self._clients:
            client.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def call(client: RawClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = client.call(tool, {**arguments, "render": "json", "detail": "full"}, timeout=30)["result"]
    found: dict[str, Any] = result["structuredContent"]
    return found


def use(client: RawClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    found = call(client, tool, **arguments)
    assert found["ok"], found
    return found


# --- where it is --------------------------------------------------------------------------------------------------


def test_the_workspace_holds_nothing_of_ours_and_the_store_is_for_its_owner_alone(place: Place) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="x" * 200_000)
    assert [path.name for path in place.workspace.iterdir()] == ["a"]
    modes = {path.stat().st_mode & 0o777 for path in place.store.rglob("*")}
    assert modes == {0o600, 0o700}
    assert place.store.stat().st_mode & 0o777 == 0o700
    found = place.status()
    assert (found["workspace"], found["store"]) == (str(place.workspace), str(place.store))
    assert found["store_reason"] is None


def test_a_workspace_that_was_deleted_and_made_again_has_its_history(place: Place) -> None:
    place.write("a", "kept\n")
    shutil.rmtree(place.workspace)
    place.workspace.mkdir()
    client = place.worker()
    use(client, "restore", path="a", journal_id="1")
    assert (place.workspace / "a").read_text() == "kept\n"


@pytest.mark.thorough
def test_a_workspace_that_was_moved_keeps_its_history_and_a_new_one_at_its_old_path_has_its_own(
    place: Place, tmp_path: Path
) -> None:
    place.write("a")
    former = place.workspace
    place.workspace = former.rename(tmp_path / "moved")
    assert place.written() == ["a"]  # reading moves nothing
    place.write("b")
    assert place.written() == ["a", "b"]
    assert place.run("verify").returncode == 0
    former.mkdir()
    place.workspace = former
    assert place.written() == []


@pytest.mark.thorough
def test_a_copy_of_a_workspace_and_a_reused_inode_have_no_history_of_another(
    place: Place, tmp_path: Path
) -> None:
    place.write("a")
    record = place.store / "root.json"
    known = json.loads(record.read_text())
    other = tmp_path / "other"
    other.mkdir()
    # As if the inode of the deleted workspace had been given to a new folder: all but the birth time is the same.
    facts = other.stat()
    record.write_text(json.dumps({**known, "root": "/gone", "device": facts.st_dev, "inode": facts.st_ino}))
    place.workspace = other
    assert place.written() == []


@pytest.mark.thorough
def test_the_users_own_settings_keep_the_store_in_the_workspace(place: Place, tmp_path: Path) -> None:
    config = tmp_path / ".config" / "perdure"
    config.mkdir(parents=True)
    (config / "perdure.toml").write_text('store = "workspace"\n')
    place.write("a")
    assert (place.workspace / ".perdure" / "journal.db").exists()
    assert (place.workspace / ".perdure" / ".gitignore").read_text() == "*\n"
    assert not (place.home / "workspaces").exists()
    assert place.status()["store_reason"] == "the settings of the user say so"
    assert place.run("verify").returncode == 0


def test_a_file_of_the_workspace_cannot_draw_the_store_into_it(place: Place) -> None:
    (place.workspace / "perdure.toml").write_text('store = "workspace"\n')
    done = place.run("journal")
    assert done.returncode == 2
    assert "store counts only in your own settings" in done.stderr


@pytest.mark.thorough
def test_a_data_directory_that_cannot_be_written_leaves_the_store_in_the_workspace(
    place: Place, tmp_path: Path
) -> None:
    del place.environ["PERDURE_HOME"]
    place.environ.update(XDG_DATA_HOME="/proc/none", XDG_STATE_HOME=str(tmp_path / "state"))
    place.write("a")
    assert (place.workspace / ".perdure" / "journal.db").exists()
    assert "cannot be written" in place.status()["store_reason"]
    assert "cannot be written" in place.run("doctor", "--json").stdout


def test_a_network_file_system_is_recognized_by_the_mounts() -> None:
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /home/u rw,relatime shared:1 - nfs4 server:/u rw\n"
        "31 30 8:2 / /home/u/a\\040b rw - ext4 /dev/sda2 rw\n"
    )
    assert type_in(mounts, "/home/u/.local/share") == "nfs4"
    assert type_in(mounts, "/home/u/a b/c") == "ext4"
    assert type_in(mounts, "/home/user") == "ext4"


@pytest.mark.thorough
def test_two_homes_on_one_workspace_exclude_each_other(place: Place, tmp_path: Path) -> None:
    """As two users, or a container: each has a store of its own, and the lock is on the workspace itself."""
    one, other = place.worker(), place.worker(PERDURE_HOME=str(tmp_path / "other home"))
    use(one, "safe_write", path="n", content="0")
    for _ in range(10):
        for client in (one, other):
            before = use(client, "read", path="n")
            content = str(int(before["content"]) + 1)
            use(
                client,
                "safe_write",
                path="n",
                content=content,
                mode="overwrite",
                expected_prev_sha256=before["sha256"],
            )
    assert (place.workspace / "n").read_text() == "20"
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(place.workspace)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    sent = [client.start_call("safe_write", {"path": "m", "content": "x"}) for client in (one, other)]
    assert one.request("ping")["result"] == {}
    assert not any(client.answers.get(identity) for client, identity in zip((one, other), sent, strict=True))
    holder.communicate(b"\n")
    answers = [client.wait(identity)["result"] for client, identity in zip((one, other), sent, strict=True)]
    assert sorted(bool(answer.get("isError")) for answer in answers) == [False, True]


_HOLD = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""


def test_no_tool_reaches_the_store_where_the_home_directory_is_the_workspace(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.workspace = tmp_path
    client = place.worker()
    use(client, "safe_write", path="a", content="x")
    journal = str((place.store / "journal.db").relative_to(tmp_path))
    for tool, more in (("read", {}), ("safe_write", {"content": "x", "mode": "overwrite", "force": True})):
        assert call(client, tool, path=journal, **more)["context"]["reason"] == "protected_path"
    place.close()


# --- the store of an earlier version -------------------------------------------------------------------------------

POINTS = (
    "store.marked",
    "store.content_moved",
    "store.before_journal",
    "store.journal_moved",
    "store.one_removed",
)


def unpack_earlier(place: Place) -> Path:
    place.workspace.rmdir()
    unpack(FIXTURES / "stores.tar.gz", place.workspace.parent)
    return place.workspace / ".perdure"


def check_taken_over(place: Place, client: RawClient) -> None:
    versions = use(client, "history", path="large.txt")["versions"]
    use(client, "restore", path="large.txt", journal_id=versions[-1]["journal_id"])
    assert use(client, "read", path="killed.txt")["content"] == "decided before the kill\n"
    assert not (place.workspace / ".perdure" / "journal.db").exists()
    assert not (place.store / "moving").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS)
def test_a_move_that_is_killed_is_finished_by_the_next_start(place: Place, point: str) -> None:
    old = unpack_earlier(place)
    (old / "policy.yaml").write_text("{}\n")
    dying = place.worker(PERDURE_FAULT=f"{point}=kill")
    dying.start_call("safe_write", {"path": "never", "content": "x"})
    dying.wait_end()
    assert len(place.written()) == 13  # a reader finds a whole store, wherever it is
    check_taken_over(place, place.worker())
    assert sorted(path.name for path in old.iterdir()) == [".gitignore", "policy.yaml"]


@pytest.mark.thorough
def test_a_store_is_moved_to_another_file_system(tmp_path: Path) -> None:
    other = Path("/dev/shm" if os.stat("/dev/shm").st_dev != tmp_path.stat().st_dev else "/var/tmp")
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    home = other / f"perdure-test-{os.getpid()}"
    try:
        for point in POINTS:
            (tmp_path / point).mkdir()
            place = Place(tmp_path / point)
            place.home = home / point
            place.environ["PERDURE_HOME"] = str(place.home)
            unpack_earlier(place)
            dying = place.worker(PERDURE_FAULT=f"{point}=kill")
            dying.start_call("safe_write", {"path": "never", "content": "x"})
            dying.wait_end()
            assert len(place.written()) == 13
            check_taken_over(place, place.worker())
            place.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.thorough
def test_a_store_that_a_process_of_an_earlier_version_uses_is_moved_when_that_has_ended(place: Place) -> None:
    old = unpack_earlier(place)
    earlier = apsw.Connection(str(old / "journal.db"))
    earlier.execute("SELECT count(*) FROM journal").fetchall()
    place.write("a")
    assert (old / "journal.db").exists()
    assert "a" in place.written()
    earlier.close()
    place.write("b")
    assert not (old / "journal.db").exists()
    assert place.written()[-2:] == ["a", "b"]
    assert place.run("verify").returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("planted", ["for everyone", "by a link", "its journal a link", "tracked"])
def test_a_planted_store_is_neither_used_nor_followed(place: Place, tmp_path: Path, planted: str) -> None:
    old = unpack_earlier(place)
    outside = tmp_path / "outside"
    if planted == "for everyone":
        (old / "journal.db").chmod(0o644)
    elif planted == "by a link":
        old.rename(outside)
        old.symlink_to(outside)
    elif planted == "its journal a link":
        (old / "journal.db").rename(outside)
        (old / "journal.db").symlink_to(outside)
    else:
        subprocess.run(["git", "init", "-q"], cwd=place.workspace, check=True)
        subprocess.run(["git", "add", "-f", "."], cwd=place.workspace, check=True)
    place.write("a")
    assert place.written() == ["a"]
    assert not (place.workspace / "killed.txt").exists()
    assert old.exists()


@pytest.mark.thorough
def test_a_store_in_the_workspace_is_not_reached_through_links(place: Place, tmp_path: Path) -> None:
    config, outside = tmp_path / ".config" / "perdure", tmp_path / "outside"
    config.mkdir(parents=True)
    outside.mkdir()
    (config / "perdure.toml").write_text('store = "workspace"\n')
    folder = place.workspace / ".perdure"
    folder.symlink_to(outside)
    assert call(place.worker(), "safe_write", path="a", content="x")["context"]["reason"] == "symlink_loop"
    folder.unlink()
    for name in ("journal.db", "blobs", "lock", "landed"):
        folder.mkdir(mode=0o700)
        (folder / name).symlink_to(outside / name)
        assert not call(place.worker(), "safe_write", path="a", content="x")["ok"]
        shutil.rmtree(folder)
    assert list(outside.iterdir()) == []


# --- removed or replaced beneath a session --------------------------------------------------------------------------


def test_a_store_removed_beneath_a_session_is_noticed_before_the_next_write(place: Place) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="one\n")
    use(client, "safe_write", path="b", content="x" * 200_000)
    shutil.rmtree(place.store)
    use(client, "safe_write", path="a", content="two\n", mode="overwrite")
    assert [entry["path"] for entry in use(client, "journal_tail")["entries"]] == ["a"]
    assert place.written() == ["a"]
    second = place.worker()
    assert use(second, "undo", session="any")["reverted"][0]["path"] == "a"
    client.close()
    second.close()
    assert (place.workspace / "a").read_text() == "one\n"
    done = place.run("verify")
    assert (done.returncode, "rows 1 to 2 were there and are gone" in done.stdout) == (1, True)


def test_a_refused_payload_is_kept_where_the_store_was_removed(place: Place) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="one\n")
    shutil.rmtree(place.store)
    found = call(client, "safe_write", path="a", content="two\n")
    assert found["context"]["reason"] == "file_already_exists"
    use(client, "safe_write", path="b", draft=found["draft"])
    assert (place.workspace / "b").read_text() == "two\n"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "blobs", "lock"])
def test_a_part_of_the_store_that_is_removed_is_noticed(place: Place, name: str) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="one\n")
    path = place.store / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    use(client, "safe_write", path="b", content="x" * 200_000)
    use(client, "safe_write", path="c", content="two\n")
    client.kill()
    assert place.written()[-2:] == ["b", "c"]


@pytest.mark.thorough
def test_an_older_copy_of_the_store_put_in_its_place_is_noticed(place: Place, tmp_path: Path) -> None:
    place.write("a")
    shutil.copytree(place.store, tmp_path / "copy")
    client = place.worker()
    use(client, "safe_write", path="b", content="x")
    shutil.rmtree(place.store)
    shutil.copytree(tmp_path / "copy", place.store)
    use(client, "safe_write", path="c", content="x")
    client.close()
    assert place.written() == ["a", "c"]
    done = place.run("verify")
    assert (done.returncode, "rows 2 to 2 were there and are gone" in done.stdout) == (1, True)


def test_a_workspace_replaced_at_its_path_is_opened_anew(place: Place, tmp_path: Path) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="one\n")
    old = place.workspace.rename(tmp_path / "old")
    place.workspace.mkdir()
    use(client, "safe_write", path="n", content="new\n")
    use(client, "safe_write", path=str(place.workspace / "abs"), content="new\n")
    assert call(client, "read", path="a")["error"] == "not_found"
    assert sorted(path.name for path in place.workspace.iterdir()) == ["abs", "n"]
    assert [path.name for path in old.iterdir()] == ["a"]


def test_a_write_into_a_workspace_that_is_gone_is_refused_and_its_payload_kept(
    place: Place, tmp_path: Path
) -> None:
    client = place.worker()
    use(client, "safe_write", path="a", content="one\n")
    shutil.rmtree(place.workspace)
    found = call(client, "safe_write", path="b", content="two\n")
    assert (found["context"]["reason"], found["suggested_action"]) == ("workspace_gone", "ask_user")
    assert call(client, "read", path="a")["context"]["reason"] == "workspace_gone"
    place.workspace.mkdir()
    use(client, "safe_write", path="b", draft=found["draft"])
    assert (place.workspace / "b").read_text() == "two\n"


def test_health_says_that_a_store_was_opened_anew(bed: Bed) -> None:
    client = bed.run()
    client.use("safe_write", {"path": "a", "content": "x"})
    client.use("set_state", {"key": "k", "value": "1"})
    shutil.rmtree(bed.store)
    for path in (bed.root / "home").glob("state.db*"):
        path.unlink()
    client.use("safe_write", {"path": "b", "content": "x"})
    client.use("set_state", {"key": "k", "value": "2"})
    notices = client.row("perdure")["notices"]
    assert ["store of the workspace" in notices[0], "state store" in notices[1]] == [True, True]
    assert client.notifications == []  # it is the host's own


# --- the journal cannot be changed unnoticed ------------------------------------------------------------------------


def edit_journal(place: Place, *statements: str) -> None:
    connection = apsw.Connection(str(place.store / "journal.db"))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.thorough
def test_rows_that_were_removed_are_told_after_the_next_write_too(place: Place) -> None:
    client = place.worker()
    for number in range(5):
        use(client, "safe_write", path=f"f{number}", content="x")
    client.close()
    edit_journal(place, "DELETE FROM journal WHERE seq > 3", "DELETE FROM intents")
    place.write("g")
    place.write("h")
    for _ in range(2):
        done = place.run("verify")
        assert (done.returncode, "break  rows 4 to 5 were there and are gone" in done.stdout) == (1, True)
    assert place.written() == ["f0", "f1", "f2", "g", "h"]


@pytest.mark.thorough
def test_rows_removed_beneath_a_running_worker_are_told(place: Place) -> None:
    client = place.worker()
    for number in range(3):
        use(client, "safe_write", path=f"f{number}", content="x")
    edit_journal(place, "DELETE FROM journal WHERE seq = 3", "DELETE FROM intents WHERE seq = 3")
    use(client, "safe_write", path="g", content="x")
    client.close()
    done = place.run("verify")
    assert (done.returncode, "rows 3 to 3 were there and are gone" in done.stdout) == (1, True)


@pytest.mark.thorough
def test_a_rewritten_history_is_told_although_its_chain_is_whole(place: Place, tmp_path: Path) -> None:
    place.write("a", "one\n")
    forged = Place(tmp_path / "forged")
    forged.write("a", "forged\n")
    forged.write("b", "forged\n")
    for name in os.listdir(forged.store):
        if name.startswith("journal.db"):
            shutil.copy(forged.store / name, place.store / name)
    place.write("c")
    done = place.run("verify")
    assert done.returncode == 1
    assert "row 1 and those before it are not the ones that were written" in done.stdout


@pytest.mark.thorough
def test_verify_compares_before_it_settles_what_was_left_open(place: Place, tmp_path: Path) -> None:
    """Recovery commits, and a commit overwrites the anchor."""
    dying = place.worker(PERDURE_FAULT="commit.decided=kill")
    dying.start_call("safe_write", {"path": "a", "content": "x"})
    dying.wait_end()
    shutil.copytree(place.store, tmp_path / "copy")
    place.write("b")
    shutil.rmtree(place.store)
    shutil.copytree(tmp_path / "copy", place.store)
    for _ in range(2):
        assert place.run("verify").returncode == 1
    assert (place.workspace / "a").read_text() == "x"


def test_a_stopped_process_that_holds_the_lock_does_not_hold_up_writers_for_ever(
    place: Place,
) -> None:
    from perdure.present.tool_errors import tool_error
    from perdure.storage.errors import LockTimeout
    from perdure.workspace import writer_lock

    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(place.workspace)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    os.kill(holder.pid, signal.SIGSTOP)
    root = os.open(place.workspace, os.O_RDONLY)
    try:
        lock = writer_lock.WriterLock(str(place.workspace.parent / "lock"), [root], wait_s=0.05)
        with pytest.raises(LockTimeout) as refused:
            lock.take()
        answer = tool_error(refused.value).envelope
        assert answer.context["reason"] == "workspace_locked"
        assert answer.suggested_action == "retry_later"
    finally:
        os.close(root)
        holder.kill()
        holder.communicate()
