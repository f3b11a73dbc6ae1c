"""A file lands whole or not at all, keeps what it had, and never takes somebody else's content with it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import resource
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.platform import fault_points, files
from perdure.platform.permissions import ACL
from perdure.present.tool_errors import tool_error
from perdure.storage.errors import Conflict, FileChanging, FileError, LockTimeout, StorageError, SyncError
from perdure.storage.files import pending, swap, temp_names
from perdure.storage.files.fingerprint import Expected, Identity, seen, sha256_of
from perdure.storage.files.metadata import FileMetadata, apply, capture
from perdure.storage.files.pending import Landed, PendingFile
from perdure.storage.files.removal import remove
from perdure.workspace.recovery.temp_cleanup import sweep

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


class Folder:
    """A directory held open, and short words for what tests do in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def seen(self, name: str = "f") -> Expected:
        with open(self.path / name, "rb") as file:
            return seen(file.fileno())

    def facts(self, name: str = "f") -> FileMetadata:
        with open(self.path / name, "rb") as file:
            return capture(file.fileno())

    def create(self, name: str, content: bytes, *, sync: bool = False) -> Landed:
        with PendingFile(self.fd, name, sync=sync) as new:
            new.write(content)
            return new.create()

    def replace(
        self,
        content: bytes,
        expected: Expected | None = None,
        facts: FileMetadata | None = None,
        *,
        name: str = "f",
        sync: bool = False,
    ) -> Landed:
        with PendingFile(self.fd, name, like=facts or self.facts(name), sync=sync) as new:
            new.write(content)
            return new.replace_if(expected or self.seen(name))

    def read(self, name: str = "f") -> bytes:
        return (self.path / name).read_bytes()

    @property
    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "dir").mkdir()
    opened = Folder(tmp_path / "dir")
    (opened.path / "f").write_bytes(b"old")
    yield opened
    os.close(opened.fd)


@pytest.fixture(params=["nameless", "named"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without temporary files that have no name."""
    if request.param == "named":
        monkeypatch.setattr(files, "_TMPFILE", 0)


@pytest.fixture
def armed() -> Iterator[Callable[[str], None]]:
    yield fault_points.arm
    fault_points.arm("")


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd")) if sys.platform == "linux" else set()
    yield
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before)


def reason(error: StorageError) -> str:
    return str(tool_error(error).envelope.context["reason"])


def in_processes(count: int, work: Callable[[int], None]) -> list[int]:
    """Run the same work in several forked processes that start together; their exit codes."""
    gate, opener = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(opener)
                os.read(gate, 1)  # returns when nobody holds the other end any more
                work(number)
                code = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            finally:
                os._exit(code)
        children.append(pid)
    os.close(gate)
    os.close(opener)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


# --- landing ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("sync", [False, True])
def test_a_created_file_is_whole_and_alone(folder: Folder, sync: bool) -> None:
    landed = folder.create("new", b"content" * 1000, sync=sync)

    assert folder.read("new") == b"content" * 1000
    assert folder.names == ["f", "new"]
    assert landed.size == 7000
    assert landed.sha256 == folder.seen("new").sha256


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("sync", [False, True])
def test_a_replaced_file_is_whole_and_alone(folder: Folder, sync: bool) -> None:
    landed = folder.replace(b"new", sync=sync)

    assert folder.read() == b"new"
    assert folder.names == ["f"]
    assert landed.warnings == ()


@pytest.mark.usefixtures("both_ways")
def test_what_does_not_land_leaves_no_trace(folder: Folder) -> None:
    with PendingFile(folder.fd, "g") as new:
        new.write(b"x")
    with contextlib.suppress(KeyError), PendingFile(folder.fd, "f", like=folder.facts()) as new:
        new.write(b"x")
        new.seal()
        raise KeyError

    assert folder.names == ["f"]
    assert folder.read() == b"old"
    with pytest.raises(ValueError, match="complete"):
        new.write(b"more")


@pytest.mark.usefixtures("both_ways")
def test_a_taken_name_is_refused(folder: Folder) -> None:
    with pytest.raises(FileError) as refused:
        folder.create("f", b"new")

    assert tool_error(refused.value).envelope.error == "stale_precondition"
    assert reason(refused.value) == "file_already_exists"
    assert (folder.read(), folder.names) == (b"old", ["f"])


def test_of_four_creators_exactly_one_wins_in_200_rounds(folder: Folder) -> None:
    rounds = 200

    def compete(number: int) -> None:
        won, refused = [], set()
        for turn in range(rounds):
            try:
                folder.create(f"r{turn}", b"%d" % number * 100)
                won.append(turn)
            except FileError as error:
                refused.add(reason(error))
        assert refused <= {"file_already_exists"}
        (folder.path / f"won{number}").write_text(" ".join(map(str, won)))

    assert in_processes(4, compete) == [0] * 4

    won = [int(turn) for n in range(4) for turn in (folder.path / f"won{n}").read_text().split()]
    assert sorted(won) == list(range(rounds))
    for turn in range(rounds):
        content = folder.read(f"r{turn}")
        assert content in {b"%d" % n * 100 for n in range(4)}
    assert not [name for name in folder.names if name.startswith(temp_names.PREFIX)]


def test_of_four_replacers_exactly_one_wins_each_round(folder: Folder) -> None:
    """Compare-and-swap of four processes that share no workspace lock: no increment is lost."""

    def count(_: int) -> None:
        done = 0
        while done < 25:
            with open(folder.path / "f", "rb") as file:
                expected, facts = seen(file.fileno()), capture(file.fileno())
                number = int(os.pread(file.fileno(), 100, 0))
            try:
                with PendingFile(folder.fd, "f", like=facts) as new:
                    new.write(b"%d" % (number + 1))
                    new.replace_if(expected)
                done += 1
            except Conflict as conflict:
                conflict.close()

    (folder.path / "f").write_bytes(b"0")

    assert in_processes(4, count) == [0] * 4
    assert folder.read() == b"100"
    assert folder.names == ["f"]


@pytest.mark.parametrize("length", [240, 255])
def test_a_target_may_use_all_of_a_name(folder: Folder, length: int) -> None:
    name = "n" * length
    folder.create(name, b"one")
    folder.replace(b"two", name=name)

    assert folder.read(name) == b"two"
    remove(folder.fd, name, folder.seen(name))
    assert folder.names == ["f"]


# --- other programs ---------------------------------------------------------------------------------------


def rewrite(path: Path, content: bytes) -> None:
    """As an editor does."""
    beside = path.with_name("editor-temp")
    beside.write_bytes(content)
    beside.rename(path)


@pytest.mark.parametrize("how", ["renamed", "in place", "truncated"])
def test_a_foreign_edit_is_met_before_it_is_overwritten(folder: Folder, how: str) -> None:
    expected = folder.seen()
    match how:
        case "renamed":
            rewrite(folder.path / "f", b"theirs")
        case "in place":
            (folder.path / "f").write_bytes(b"theirs")
        case _:
            (folder.path / "f").write_bytes(b"")

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected)

    with met.value as conflict:
        assert tool_error(conflict).envelope.error == "conflict"
        assert conflict.reason == "changed_meanwhile"
        assert conflict.found is not None
        assert conflict.found.read() == folder.read() == (b"" if how == "truncated" else b"theirs")
        assert conflict.displaced == ()
    assert folder.names == ["f"]


def test_the_same_content_written_anew_is_what_was_expected(folder: Folder) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"old")

    folder.replace(b"ours", expected)

    assert folder.read() == b"ours"


def test_an_old_identity_is_not_trusted_over_a_changed_content(folder: Folder) -> None:
    os.utime(folder.path / "f", (1, 1))
    expected = folder.seen()
    (folder.path / "f").write_bytes(b"OLD")
    os.utime(folder.path / "f", (1, 1))  # same inode, size and mtime

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected)

    met.value.close()
    assert folder.read() == b"OLD"


def test_a_settled_identity_saves_reading_the_file(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    known = folder.seen()
    assert known.identity is not None
    info = os.stat(folder.path / "f")
    later = Identity.of(info).seen_ns + 10_000_000_000
    settled = Identity(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, later)
    monkeypatch.setattr(
        "perdure.storage.files.fingerprint.sha256_of", lambda fd: pytest.fail("the file was read")
    )

    folder_facts = folder.facts()
    with PendingFile(folder.fd, "f", like=folder_facts) as new:
        new.write(b"new")
        new.replace_if(Expected(known.sha256, settled))

    assert folder.read() == b"new"


def test_a_file_somebody_has_open_for_writing_is_left_to_them(folder: Folder) -> None:
    with open(folder.path / "f", "r+b") as theirs:
        with pytest.raises(Conflict) as met:
            folder.replace(b"ours")
        theirs.seek(0)
        theirs.write(b"theirs")

    assert met.value.reason == "open_elsewhere"
    assert tool_error(met.value).envelope.suggested_action == "retry_later"
    met.value.close()
    assert (folder.read(), folder.names) == (b"theirs", ["f"])


def test_who_exchanges_in_a_directory_waits_for_his_turn_but_not_for_ever(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swap, "TURN_S", 0.05)
    with swap.directory_lock(folder.fd), pytest.raises(LockTimeout) as refused:
        folder.replace(b"new")

    assert (tool_error(refused.value).envelope.error, reason(refused.value)) == ("conflict", "busy")
    assert (folder.read(), folder.names) == (b"old", ["f"])
    folder.replace(b"new")


@pytest.mark.parametrize("what", ["gone", "directory", "symlink", "fifo", "hard link"])
def test_something_else_in_the_place_of_the_file_stays_there(folder: Folder, what: str) -> None:
    expected, facts = folder.seen(), folder.facts()
    path = folder.path / "f"
    if what == "hard link":
        (folder.path / "second").hardlink_to(path)
    else:
        path.unlink()
    match what:
        case "directory":
            path.mkdir()
        case "symlink":
            path.symlink_to("nowhere")
        case "fifo":
            os.mkfifo(path)
    before = path.lstat().st_mode if what != "gone" else None

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected, facts)

    met.value.close()
    wanted = {"gone": "file_vanished", "hard link": "hard_linked"}
    assert met.value.reason == wanted.get(what, "not_a_file")
    if before is not None:
        assert path.lstat().st_mode == before
    assert not [name for name in folder.names if name.startswith(temp_names.PREFIX)]


def between(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None], times: int = 1) -> None:
    """Let another program act exactly when a fault point is passed."""
    left = [times]

    def point(passed: str) -> None:
        if passed == name and left[0]:
            left[0] -= 1
            act()

    monkeypatch.setattr(swap, "point", point)
    monkeypatch.setattr(pending, "point", point)


def test_content_that_arrives_during_the_swap_back_stays_and_the_earlier_is_kept(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"first")
    between(monkeypatch, "write.before_swap_back", lambda: rewrite(folder.path / "f", b"second"))

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected)

    with met.value as conflict:
        assert conflict.found is not None
        assert conflict.found.read() == folder.read() == b"second"
        assert [file.read() for file in conflict.displaced] == [b"first"]
    assert folder.names == ["f"]


def test_a_file_removed_during_the_swap_back_comes_back(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"theirs")
    between(monkeypatch, "write.before_swap_back", (folder.path / "f").unlink)

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected)

    met.value.close()
    assert (folder.read(), folder.names) == (b"theirs", ["f"])


def test_what_is_written_into_ours_before_the_swap_back_is_kept(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"theirs")
    between(monkeypatch, "write.before_swap_back", lambda: (folder.path / "f").write_bytes(b"in place"))

    with pytest.raises(Conflict) as met:
        folder.replace(b"ours", expected)

    with met.value as conflict:
        assert [file.read() for file in conflict.displaced] == [b"in place"]
    assert (folder.read(), folder.names) == (b"theirs", ["f"])


EDITOR = """
import os, sys
from perdure.platform.files import exchange
fd = os.open(sys.argv[1], os.O_RDONLY)
for n in range(300):
    with open(sys.argv[1] + "/mine", "w") as file:
        file.write(f"editor {n}")
    exchange(fd, "mine", "f")
    print(open(sys.argv[1] + "/mine").read(), flush=True)
os.unlink(sys.argv[1] + "/mine")
"""


def test_a_foreign_writer_never_loses_content_unseen(folder: Folder) -> None:
    """Whatever was put at the name came out again under somebody's eyes, or is still there."""
    editor = subprocess.Popen([sys.executable, "-c", EDITOR, str(folder.path)], stdout=subprocess.PIPE)
    put, came_out, conflicts = {b"old"}, set(), 0
    for number in range(100_000):
        if editor.poll() is not None:
            break
        with open(folder.path / "f", "rb") as file:
            try:
                expected, facts = seen(file.fileno()), capture(file.fileno())
            except FileChanging:  # the editor came in between each time
                continue
            basis = file.read()
        try:
            folder.replace(b"ours %d" % number, expected, facts)
            put.add(b"ours %d" % number)
            came_out.add(basis)
        except Conflict as conflict:
            conflicts += 1
            with conflict:
                came_out |= {file.read() for file in conflict.displaced}
    said, _ = editor.communicate()

    assert editor.returncode == 0
    assert conflicts > 0, "they never met"
    put |= {b"editor %d" % number for number in range(300)}
    assert put <= {*came_out, *said.splitlines(), folder.read()}
    assert folder.names == ["f"]


@pytest.mark.usefixtures("both_ways")
def test_without_exchange_the_file_is_looked_at_before_it_is_replaced(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise OSError(38, "no exchange")

    monkeypatch.setattr(pending, "exchange", missing)
    expected = folder.seen()

    assert folder.replace(b"new", expected).warnings == ("no_exchange",)
    with pytest.raises(Conflict) as met:
        folder.replace(b"newer", expected)

    met.value.close()
    assert (folder.read(), folder.names) == (b"new", ["f"])


# --- removing and moving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [False, True])
def test_only_the_expected_file_is_removed(folder: Folder, sync: bool) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"theirs")
    with pytest.raises(Conflict) as met:
        remove(folder.fd, "f", expected, sync=sync)
    with met.value as conflict:
        assert conflict.found is not None
        assert conflict.found.read() == b"theirs"
    assert (folder.read(), folder.names) == (b"theirs", ["f"])

    remove(folder.fd, "f", folder.seen(), sync=sync)

    assert folder.names == []
    with pytest.raises(Conflict) as met:
        remove(folder.fd, "f", expected)
    assert met.value.reason == "file_vanished"


def test_a_file_that_cannot_come_back_is_handed_over(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = folder.seen()
    rewrite(folder.path / "f", b"first")

    def act(passed: str) -> None:
        if passed == "remove.renamed":
            (folder.path / "f").write_bytes(b"second")

    monkeypatch.setattr("perdure.storage.files.removal.point", act)
    with pytest.raises(Conflict) as met:
        remove(folder.fd, "f", expected)

    with met.value as conflict:
        assert conflict.found is not None
        assert conflict.found.read() == folder.read() == b"second"
        assert [file.read() for file in conflict.displaced] == [b"first"]


# --- fidelity ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("mode", [0o755, 0o600, 0o644, 0o444, 0o777, 0o640])
def test_a_replaced_file_keeps_its_mode(folder: Folder, mode: int) -> None:
    os.chmod(folder.path / "f", mode)

    folder.replace(b"new")

    assert stat.S_IMODE(os.stat(folder.path / "f").st_mode) == mode


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_new_file_gets_the_mode_of_a_new_file(folder: Folder, mask: int) -> None:
    old = os.umask(mask)
    try:
        folder.create("new", b"x")
    finally:
        os.umask(old)

    assert stat.S_IMODE(os.stat(folder.path / "new").st_mode) == 0o666 & ~mask


def test_a_secret_is_never_readable_by_others_on_its_way(folder: Folder) -> None:
    os.chmod(folder.path / "f", 0o600)
    with PendingFile(folder.fd, "f", like=folder.facts()) as new:
        new.write(b"secret")

        assert stat.S_IMODE(os.fstat(new._fd).st_mode) == 0o600


@pytest.mark.skipif(not ROOT, reason="only the superuser gives files away")
def test_a_replaced_file_keeps_its_owner(folder: Folder) -> None:
    os.chown(folder.path / "f", 1234, 4321)
    os.chmod(folder.path / "f", 0o640)

    folder.replace(b"new")

    info = os.stat(folder.path / "f")
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (1234, 4321, 0o640)


@pytest.mark.skipif(not ROOT, reason="needs to become somebody else")
def test_what_cannot_be_kept_is_said(folder: Folder) -> None:
    os.chown(folder.path / "f", 1234, 4321)
    os.chmod(folder.path / "f", 0o660)
    facts = folder.facts()

    def work(_: int) -> None:
        os.setgroups([])
        os.setgid(999)
        os.setuid(999)
        fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
        assert apply(fd, facts) == ("owner_not_kept", "group_not_kept")
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o600, "what one group could read is not another's"

    assert in_processes(1, work) == [0]


def test_set_id_bits_do_not_outlive_a_change_of_content(folder: Folder) -> None:
    os.chmod(folder.path / "f", 0o4755)

    landed = folder.replace(b"new")

    assert landed.warnings == ("setid_dropped",)
    assert stat.S_IMODE(os.stat(folder.path / "f").st_mode) == 0o755


def acl(*entries: tuple[int, int, int]) -> bytes:
    """A POSIX access control list as the kernel keeps it: (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


OWNER, USER, GROUP, MASK, OTHER, NOBODY = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
SHARED = acl((OWNER, 6, NOBODY), (USER, 4, 1234), (GROUP, 4, NOBODY), (MASK, 4, NOBODY), (OTHER, 0, NOBODY))


def set_xattr(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"{name} cannot be set here: {error.strerror}")


def test_a_replaced_file_keeps_its_attributes_and_its_access_list(folder: Folder) -> None:
    set_xattr(folder.path / "f", "user.origin", b"https://example.org")
    set_xattr(folder.path / "f", ACL, SHARED)

    landed = folder.replace(b"new")

    assert landed.warnings == ()
    assert os.getxattr(folder.path / "f", "user.origin") == b"https://example.org"
    assert os.getxattr(folder.path / "f", ACL) == SHARED
    assert stat.S_IMODE(os.stat(folder.path / "f").st_mode) == 0o640


def test_a_replaced_file_does_not_inherit_what_a_new_one_would(folder: Folder) -> None:
    os.chmod(folder.path / "f", 0o600)
    set_xattr(folder.path, "system.posix_acl_default", SHARED)

    folder.replace(b"new")
    folder.create("new", b"new")

    assert ACL not in os.listxattr(folder.path / "f")
    assert stat.S_IMODE(os.stat(folder.path / "f").st_mode) == 0o600
    assert os.getxattr(folder.path / "new", ACL) == SHARED


# --- failures ---------------------------------------------------------------------------------------------

CREATING = [
    "write.open_temp",
    "write.temp_created",
    "write.chunk",
    "write.before_facts",
    "write.before_fsync",
    "write.sealed",
    "write.before_create",
    "write.created",
    "write.before_dir_fsync",
]
REPLACING = [
    *CREATING[:6],
    "write.before_name",
    "write.named",
    "write.before_exchange",
    "write.exchanged",
    "write.verified",
    "write.before_dir_fsync",
    "write.before_unlink",
]
ERRORS = {
    "enospc": ("quota_exceeded", "size_limit"),
    "edquot": ("quota_exceeded", "size_limit"),
    "efbig": ("quota_exceeded", "size_limit"),
    "erofs": ("policy_violation", "permission"),
    "eacces": ("policy_violation", "permission"),
    "eio": ("write_corruption", "unknown"),
}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", sorted({*CREATING, *REPLACING}))
def test_an_error_at_any_step_is_typed_and_changes_nothing(
    folder: Folder, armed: Callable[[str], None], where: str, error: str
) -> None:
    for points, attempt in (
        (CREATING, lambda: folder.create("new", b"new", sync=True)),
        (REPLACING, lambda: folder.replace(b"new", sync=True)),
    ):
        if where not in points:
            continue
        armed(f"{where}={error}")
        with pytest.raises(FileError) as refused:
            attempt()

        got = tool_error(refused.value).envelope
        wanted = (
            ("write_corruption", "unknown")
            if "fsync" in where and error not in ("enospc", "edquot")
            else ERRORS[error]
        )
        assert (got.error, got.reason_hint) == wanted
        assert (folder.read(), folder.names) == (b"old", ["f"])
        armed("")
    folder.replace(b"next", sync=True)
    assert (folder.read(), folder.names) == (b"next", ["f"])


def test_a_failed_fsync_is_not_tried_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def failing(fd: int) -> None:
        synced.append(fd)
        raise OSError(5, "lost")

    monkeypatch.setattr(pending, "sync_file", failing)
    with PendingFile(folder.fd, "new", sync=True) as new:
        with pytest.raises(SyncError) as refused:
            new.seal()
        with pytest.raises(ValueError, match="complete"):
            new.create()

    assert reason(refused.value) == "fsync_failed"
    assert len(synced) == 1


def test_short_writes_go_on_where_they_stopped(folder: Folder, armed: Callable[[str], None]) -> None:
    content = random.Random(7).randbytes(100_001)
    armed("write.chunk=short")

    folder.create("new", content)

    assert folder.read("new") == content


def test_interrupted_calls_are_finished(folder: Folder) -> None:
    content = os.urandom(8 << 20)
    old = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(5):
            folder.replace(content, sync=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)

    assert (folder.read(), folder.names) == (content, ["f"])


def test_a_file_that_grows_over_the_limit_is_refused(folder: Folder) -> None:
    def work(_: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with pytest.raises(FileError) as refused:
            folder.replace(b"x" * 5000)
        assert (tool_error(refused.value).envelope.error, reason(refused.value)) == (
            "quota_exceeded",
            "file_too_large",
        )
        assert (folder.read(), folder.names) == (b"old", ["f"])
        folder.replace(b"y" * 900)

    assert in_processes(1, work) == [0]
    assert folder.read() == b"y" * 900


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "tiny").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path / "tiny")]
    if not ROOT or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    opened = Folder(tmp_path / "tiny")
    try:
        yield opened
    finally:
        os.close(opened.fd)
        subprocess.run(["umount", str(tmp_path / "tiny")], check=True)


@pytest.mark.usefixtures("both_ways")
def test_a_full_disk_keeps_the_old_file_and_no_litter(tiny: Folder) -> None:
    tiny.create("f", b"old" * 5000)
    for _ in range(3):
        with pytest.raises(FileError) as refused:
            tiny.replace(b"x" * 100_000)
        assert (tool_error(refused.value).envelope.error, reason(refused.value)) == (
            "quota_exceeded",
            "no_space",
        )
        assert (tiny.read(), tiny.names) == (b"old" * 5000, ["f"])

    tiny.replace(b"small")

    assert tiny.read() == b"small"


# --- what a killed process leaves -------------------------------------------------------------------------


def killed_at(where: str, work: Callable[[], object]) -> None:
    def die(_: int) -> None:
        fault_points.arm(f"{where}=kill")
        work()

    assert in_processes(1, die) == [-signal.SIGKILL]


WHERE = sorted({*REPLACING, "write.landed"})


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("where", WHERE)
def test_a_kill_at_any_step_leaves_old_or_new_and_what_the_sweep_finds(folder: Folder, where: str) -> None:
    killed_at(where, lambda: folder.replace(b"new" * 1000, sync=True))

    assert folder.read() in (b"old", b"new" * 1000)
    offered: list[str] = []

    def rescue(fd: int) -> bool:
        offered.append(sha256_of(fd))
        return True

    sweep([folder.fd], rescue)

    assert folder.names == ["f"]
    if where in ("write.exchanged", "write.verified", "write.before_dir_fsync", "write.before_unlink"):
        assert offered == [hashlib.sha256(b"old").hexdigest()], "the old file is offered before it goes"


def test_the_sweep_removes_only_what_a_dead_process_of_ours_left(folder: Folder) -> None:
    killed_at("write.exchanged", lambda: folder.replace(b"new"))
    left = [name for name in folder.names if name != "f"]
    alive = temp_names.fresh("w")
    others = [alive, ".perdure~", ".perdure~notes", ".perdure~w1.2.3", "f.tmp.0123456789ab", ".perdure-w1"]
    for name in others:
        (folder.path / name).touch()
    (folder.path / left[0].replace("~x", "~w")).mkdir()

    assert sweep([folder.fd], lambda fd: False) == ()
    assert sweep([folder.fd], lambda fd: True) == tuple(left)
    assert set(folder.names) == {*others, "f", left[0].replace("~x", "~w")}


def test_what_another_container_left_goes_only_if_it_is_older_than_the_recovery(folder: Folder) -> None:
    pid, start, space = temp_names._of_process(os.getpid())
    name = f"{temp_names.PREFIX}w{pid:x}.{start:x}.{space ^ 1:x}.{'0' * 16}"
    (folder.path / name).touch()

    assert sweep([folder.fd], lambda fd: True) == ()
    assert sweep([folder.fd], lambda fd: True, before=time.time() - 60) == ()
    assert sweep([folder.fd], lambda fd: True, before=time.time() + 60) == (name,)


def test_readers_see_the_old_or_the_new_content_never_less(folder: Folder) -> None:
    versions = [bytes([65 + n]) * 50_000 for n in range(4)]
    folder.replace(versions[0])
    stop = threading.Event()
    torn: list[int] = []

    def read() -> None:
        while not stop.is_set():
            content = folder.read()
            if content not in versions:
                torn.append(len(content))

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(200):
        folder.replace(versions[n % 4])
    stop.set()
    reader.join()

    assert torn == []


def test_an_executable_can_be_run_at_once(folder: Folder) -> None:
    with PendingFile(folder.fd, "run", like=FileMetadata(0o755, os.getuid(), os.getgid())) as new:
        new.write(b"#!/bin/sh\nexit 7\n")
        new.create()

        assert subprocess.run([folder.path / "run"]).returncode == 7


def test_another_file_is_copied_whole(folder: Folder) -> None:
    data = os.urandom(3 << 20)
    (folder.path / "source").write_bytes(data)

    with open(folder.path / "source", "rb") as source, PendingFile(folder.fd, "big") as new:
        new.copy(source.fileno(), hashlib.sha256(data).hexdigest())
        landed = new.create()

    assert (folder.path / "big").read_bytes() == data
    assert (landed.size, landed.sha256) == (len(data), hashlib.sha256(data).hexdigest())
