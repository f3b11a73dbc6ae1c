"""Moving the store that an earlier version kept in `<root>/.perdure/` to where it is kept now.

It is moved once, and only if this user made it (`workspace_store.is_earlier`). No link is followed.

    1. marker    `moving` in the new store; while it is there, a start goes on with the move
    2. contents  linked or copied; the old store stays whole and readable
    3. journal   its log is written back into it, then it is renamed into the new store: from here on that one counts
    4. rest      what is left of the old store is removed; `policy.yaml` and whatever else is not ours stays

A kill at any point leaves one whole store. A process of an earlier version that has the old journal open keeps it
from being moved; until it ends, both versions use it where it is.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import apsw

from perdure.platform import directories
from perdure.platform.fault_points import point
from perdure.platform.permissions import user_id
from perdure.platform.sync import sync_directory, sync_file
from perdure.storage.files.copy import copy_file
from perdure.storage.files.file_io import close_quietly, write_all
from perdure.storage.user_dirs import state_dir, write_private
from perdure.storage.workspace_store import FOLDER, JOURNAL, StorePlace, in_workspace

MARKER: Final = "moving"
BLOBS: Final = "blobs"
LANDED: Final = "landed"
_DIRECTORY: Final = os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW
_FILE: Final = os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK
_OURS: Final = (JOURNAL + "-wal", JOURNAL + "-shm", LANDED, "lock")


def is_moving(place: StorePlace) -> bool:
    """Whether a move was begun and not finished."""
    return os.path.lexists(os.path.join(place.folder, MARKER))


def take_over(root: str, place: StorePlace) -> bool:
    """Under the lock of the root. False where a process still uses the old store: then nothing was moved."""
    try:
        old = directories.open(os.path.join(root, FOLDER), _DIRECTORY)
    except FileNotFoundError:
        os.unlink(os.path.join(place.folder, MARKER))  # it was moved, and its folder removed
        return True
    try:
        if not os.path.lexists(place.journal):
            if not _write_back_log(os.path.join(root, FOLDER, JOURNAL)):
                return False
            new = directories.open(place.folder, _DIRECTORY)
            try:
                _move(old, new, root, place)
            finally:
                os.close(new)
        _remove_rest(old, place)
    finally:
        os.close(old)
    with suppress(OSError):  # something of the user's is in it
        os.rmdir(os.path.join(root, FOLDER))
    os.unlink(os.path.join(place.folder, MARKER))
    return True


def anchor_name(root: str) -> str:
    """As earlier versions named the anchor of a workspace."""
    return f"{zlib.crc32(root.encode('utf-8', 'surrogateescape')):08x}"


# --- moving it ----------------------------------------------------------------------------------------------


def _write_back_log(path: str) -> bool:
    """Make the journal one file. False where another connection has it open."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        connection.pragma("locking_mode", "exclusive")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    fd = directories.open(path, _FILE)
    try:
        sync_file(fd)
    finally:
        os.close(fd)
    return not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0


def _move(old: int, new: int, root: str, place: StorePlace) -> None:
    _write(new, MARKER, _fingerprint(old))
    sync_directory(new)
    point("store.marked")
    _copy_anchor(root, place)
    for name, source in _own_blobs(old):
        with _made(new, BLOBS) as blobs:
            _link_or_copy(source, name, blobs)
        point("store.content_moved")
    with suppress(FileNotFoundError):
        _link_or_copy(old, LANDED, new)
    point("store.before_journal")
    try:
        directories.rename(JOURNAL, JOURNAL, src_dir_fd=old, dst_dir_fd=new)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = f"{JOURNAL}.moving"
        with suppress(FileNotFoundError):
            directories.unlink(temporary, dir_fd=new)
        _copy(old, JOURNAL, new, temporary)
        directories.rename(temporary, JOURNAL, src_dir_fd=new, dst_dir_fd=new)
    sync_directory(new)
    point("store.journal_moved")


def _remove_rest(old: int, place: StorePlace) -> None:
    """Of the old store, what the new one has. What was changed since it was copied stays."""
    with open(os.path.join(place.folder, MARKER), "rb") as file:
        copied = file.read()
    if _fingerprint(old) not in (b"", copied):
        return
    for name in (JOURNAL, *_OURS):
        with suppress(FileNotFoundError):
            directories.unlink(name, dir_fd=old)
        point("store.one_removed")
    for name, source in _own_blobs(old):
        directories.unlink(name, dir_fd=source)
    with suppress(OSError):
        directories.rmdir(BLOBS, dir_fd=old)
    if set(os.listdir(old)) <= {".gitignore"}:
        with suppress(FileNotFoundError):
            directories.unlink(".gitignore", dir_fd=old)
    sync_directory(old)


def _fingerprint(old: int) -> bytes:
    """A fingerprint of the old journal, to detect a write after it was copied; empty if there is no journal."""
    try:
        facts = directories.stat(JOURNAL, dir_fd=old, follow_symlinks=False)
    except FileNotFoundError:
        return b""
    return b"%d %d %d" % (facts.st_ino, facts.st_size, facts.st_mtime_ns)


def _copy_anchor(root: str, place: StorePlace) -> None:
    """What was remembered of the head of the old store counts for the new one."""
    for former in (in_workspace(root, "").anchor, os.path.join(state_dir(), "anchors", anchor_name(root))):
        with suppress(OSError), open(former, "rb") as file:
            write_private(place.anchor, file.read(200))
            return


def _own_blobs(old: int) -> Iterator[tuple[str, int]]:
    """The names of its contents and the folder they are in. Links and files of others are left alone."""
    try:
        folder = directories.open(BLOBS, _DIRECTORY, dir_fd=old)
    except OSError:
        return
    try:
        for name in sorted(os.listdir(folder)):
            facts = directories.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(facts.st_mode) and facts.st_uid == user_id():
                yield name, folder
    finally:
        os.close(folder)


@contextmanager
def _made(parent: int, name: str) -> Iterator[int]:
    with suppress(FileExistsError):
        directories.mkdir(name, 0o700, dir_fd=parent)
    folder = directories.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield folder
        sync_directory(folder)
    finally:
        os.close(folder)


def _link_or_copy(source: int, name: str, target: int) -> None:
    with suppress(FileNotFoundError):
        directories.unlink(name, dir_fd=target)  # perhaps half a copy, of a move that was killed
    try:
        directories.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError:
        _copy(source, name, target, name)


def _copy(source: int, name: str, target: int, new_name: str) -> None:
    reading = directories.open(name, _FILE, dir_fd=source)
    try:
        writing = directories.open(
            new_name, os.O_RDWR | os.O_CREAT | os.O_EXCL | directories.NOFOLLOW, 0o600, dir_fd=target
        )
        try:
            copy_file(reading, writing, "store.copy")
            sync_file(writing)
        finally:
            os.close(writing)
    finally:
        close_quietly(reading)


def _write(folder: int, name: str, data: bytes) -> None:
    fd = directories.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | directories.NOFOLLOW, 0o600, dir_fd=folder
    )
    try:
        write_all(fd, data, "store.marker")
        sync_file(fd)
    finally:
        os.close(fd)
