"""Where the store of a workspace is: its journal, the contents it keeps, and its marks.

    <data>/workspaces/<id>/             0700, its files 0600; `<id>` is a hash of the root's canonical path
        root.json                       path, device, inode and birth time of the root
        journal.db  blobs/  landed  lock
    <state>/anchors/<id>                the head of the journal, remembered outside of the store

Nothing that is done to the files of the workspace reaches it: `git clean -fdx` does not remove it, and a cloned
repository cannot bring one along. It is found by the path of the root. So a root that was deleted and made again has
its history. A root that was moved is recognized by device, inode and birth time, if nothing is at its old path.

In `<root>/.perdure/` it is kept only where the user's own settings say so, or where the data directory cannot hold a
database. A `.perdure/` of an earlier version is read there until the first writer moves it (`sqlite/earlier_store.py`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from perdure.platform import directories, file_systems
from perdure.platform.files import birth_time
from perdure.platform.permissions import user_id
from perdure.platform.sync import sync_directory, sync_file
from perdure.storage.files.file_io import write_all
from perdure.storage.user_dirs import data_dir, state_dir

FOLDER: Final = ".perdure"
JOURNAL: Final = "journal.db"
RECORD: Final = "root.json"
_RECORD_MAX: Final = 64 * 1024
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)
"""Any other error says nothing about what is there: it is told, since to begin another store would split a history."""

Setting = Literal["data", "workspace"]
Kind = Literal["data", "workspace", "earlier"]


class StorePlace(msgspec.Struct, frozen=True):
    """A store that is there, or will be with the first write.

    | kind | |
    |---|---|
    | data | in the user's data directory |
    | workspace | in `.perdure/`, which was chosen or had to be |
    | earlier | in `.perdure/`, made by an earlier version and not moved yet |
    """

    root: str
    folder: str
    anchor: str
    kind: Kind
    reason: str = ""
    """Why it is not in the data directory."""

    @property
    def journal(self) -> str:
        return os.path.join(self.folder, JOURNAL)


class RootIdentity(msgspec.Struct, frozen=True):
    """What stays the same when a directory is moved. Without the birth time a reused inode could not be told."""

    device: int
    inode: int
    born: int | None


def find(root: str, setting: Setting = "data") -> StorePlace:
    """The store of a workspace. Nothing is created, moved or locked."""
    root = os.path.realpath(root)
    if setting == "workspace":
        return in_workspace(root, "the settings of the user say so")
    place = in_data(root)
    if _exists(place.journal):
        return place
    if (moved := find_moved(root)) is not None:
        return moved
    if (reason := _obstacle(root)) is not None:
        return in_workspace(root, reason)
    if is_earlier(root):
        return in_workspace(root, "an earlier version made it; the next write moves it", kind="earlier")
    return place


def is_known(root: str) -> bool:
    """Whether this user has a store for this root. By its path alone: `find` also recognizes a root that was moved."""
    return _exists(in_data(root).journal) or is_earlier(root)


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except _ABSENT:
        return False
    return True


def refuse_link(folder: str) -> None:
    """Nothing of ours is reached through a link."""
    if os.path.islink(folder):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)


# --- the places ---------------------------------------------------------------------------------------------


def in_data(root: str) -> StorePlace:
    ident = store_id(root)
    return StorePlace(root, os.path.join(stores_folder(), ident), anchor_path(ident), "data")


def in_workspace(root: str, reason: str, kind: Kind = "workspace") -> StorePlace:
    anchor = anchor_path(f"{store_id(root)}-workspace")
    return StorePlace(root, os.path.join(root, FOLDER), anchor, kind, reason)


def store_id(root: str) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def stores_folder() -> str:
    """Canonical, since a database is not opened through a link."""
    return os.path.realpath(os.path.join(data_dir(), "workspaces"))


def anchor_path(name: str) -> str:
    return os.path.join(state_dir(), "anchors", name)


def _obstacle(root: str) -> str | None:
    """Why the data directory cannot hold the store of this workspace; None where it can."""
    folder = stores_folder()
    while not _exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return f"{data_dir()} cannot be written"
    if _is_pseudo(folder):
        return f"{data_dir()} cannot be written"
    if file_systems.is_network(folder) and not file_systems.is_network(root):
        return f"{data_dir()} is on a network file system"
    return None


def _is_pseudo(folder: str) -> bool:
    """A file system such as `/proc`, which holds no files of ours."""
    try:
        return file_systems.space(folder).total_bytes == 0
    except OSError:
        return True


# --- which root it belongs to -------------------------------------------------------------------------------


def identity(root: str) -> RootIdentity:
    facts = os.stat(root)
    return RootIdentity(facts.st_dev, facts.st_ino, birth_time(root))


def write_record(place: StorePlace) -> None:
    """Remember whose store this is. Durable on return; what has not changed is not written again."""
    record = {"root": place.root, **msgspec.structs.asdict(identity(place.root))}
    path = os.path.join(place.folder, RECORD)
    if read_record(place.folder) == record:
        return
    temporary = f"{path}.{os.getpid()}"
    fd = directories.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | directories.NOFOLLOW, 0o600)
    try:
        write_all(fd, json.dumps(record).encode(), "store.record")
        sync_file(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    sync_folder(place.folder)


def read_record(folder: str) -> dict[str, Any]:
    """Empty where there is none that can be read."""
    try:
        fd = directories.open(os.path.join(folder, RECORD), os.O_RDONLY | directories.NOFOLLOW)
        try:
            found = json.loads(os.read(fd, _RECORD_MAX))
        finally:
            os.close(fd)
    except (*_ABSENT, PermissionError, ValueError):
        return {}
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return {}
    return found if isinstance(found, dict) else {}


def find_moved(root: str) -> StorePlace | None:
    """The store of a root that was at another path, where nothing is now."""
    wanted = msgspec.structs.asdict(identity(root))
    for folder in store_folders():
        record = read_record(folder)
        former = record.get("root")
        if not isinstance(former, str) or former == root or os.path.lexists(former):
            continue
        if all(record.get(name) == value for name, value in wanted.items()) and os.path.lexists(
            os.path.join(folder, JOURNAL)
        ):
            return StorePlace(root, folder, anchor_path(os.path.basename(folder)), "data")
    return None


def store_folders() -> Iterator[str]:
    """The stores of this user in the data directory, of workspaces that are there and that are gone."""
    try:
        with os.scandir(stores_folder()) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except _ABSENT:
        return
    for name in names:
        yield os.path.join(stores_folder(), name)


def sync_folder(path: str) -> None:
    fd = directories.open(path, os.O_RDONLY | directories.DIRECTORY)
    try:
        sync_directory(fd)
    finally:
        os.close(fd)


# --- the store of an earlier version ------------------------------------------------------------------------


def is_earlier(root: str) -> bool:
    """Whether `.perdure/` is a store that this user made: a private journal, no links, nothing that git tracks.

    What git checks out is for everyone to read, unless the umask says otherwise.
    """
    try:
        folder = directories.open(
            os.path.join(root, FOLDER), os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW
        )
    except (*_ABSENT, PermissionError):
        return False
    try:
        facts = directories.stat(JOURNAL, dir_fd=folder, follow_symlinks=False)
        is_own = _is_own(os.fstat(folder), 0o022) and _is_own(facts, 0o077)
        return is_own and stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1 and not _is_tracked(root)
    except _ABSENT:
        return False
    finally:
        os.close(folder)


def _is_own(facts: os.stat_result, denied: int) -> bool:
    """Made by this user, and others have none of these permissions."""
    return facts.st_uid == user_id() and not facts.st_mode & denied


def _is_tracked(root: str) -> bool:
    """Whether git checked it out. The first byte of a name can be shared with the entry before it."""
    try:
        with open(os.path.join(root, ".git", "index"), "rb") as file:
            return f"{FOLDER}/{JOURNAL}\0".encode()[1:] in file.read()
    except OSError:
        return False
