"""Making the store of a workspace ready for a writer: its folder, its record, and what has to be moved first."""

from __future__ import annotations

import os
from contextlib import suppress

from perdure.platform import directories
from perdure.platform.descriptors import pread, pwrite
from perdure.storage.process_lock import LOCK_S, DirectoryLock
from perdure.storage.sqlite import legacy_store
from perdure.storage.user_dirs import make_private_folders, write_private
from perdure.storage.workspace_store import (
    RECORD,
    Setting,
    StorePlace,
    find,
    in_data,
    in_workspace,
    refuse_link,
    sync_folder,
    write_record,
)


def prepare(root: str, setting: Setting = "data") -> StorePlace:
    """The store of a workspace, with its folder. A store at a former place is moved to the one it has now."""
    place = find(root, setting)
    if place.kind == "workspace":
        _make_in_workspace(place.folder)
        return place
    fd = directories.open(place.root, directories.PLACE | directories.DIRECTORY)
    lock = DirectoryLock(fd)
    try:
        lock.take(LOCK_S)
        try:
            return _prepare_in_data(find(root, setting))  # another process may have moved it meanwhile
        finally:
            lock.give()
    finally:
        lock.close()
        os.close(fd)


def _prepare_in_data(place: StorePlace) -> StorePlace:
    wanted = in_data(place.root)
    if place.kind == "data" and place.folder != wanted.folder:
        _rename(place, wanted)
    make_private_folders(wanted.folder)
    write_record(wanted)
    if (place.kind == "earlier" or legacy_store.is_moving(wanted)) and not legacy_store.take_over(
        place.root, wanted
    ):
        return in_workspace(
            place.root, "a process of an earlier version still uses it; it is moved later", kind="earlier"
        )
    return wanted


def _rename(old: StorePlace, new: StorePlace) -> None:
    """Give the store of a moved root the name of its new path. Until it has it, the anchor is there under both."""
    with suppress(FileNotFoundError), open(old.anchor, "rb") as file:
        write_private(new.anchor, file.read(200))
    with suppress(FileNotFoundError):  # made, and never used
        os.unlink(os.path.join(new.folder, RECORD))
    with suppress(FileNotFoundError):
        os.rmdir(new.folder)
    os.rename(old.folder, new.folder)
    sync_folder(os.path.dirname(new.folder))
    with suppress(FileNotFoundError):
        os.unlink(old.anchor)


def _make_in_workspace(path: str) -> None:
    """Made if it is not there; a link of that name is refused."""
    refuse_link(path)
    with suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    folder = directories.open(path, os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW)
    try:
        flags = os.O_RDWR | os.O_CREAT | directories.NOFOLLOW
        fd = directories.open(".gitignore", flags, 0o600, dir_fd=folder)
        try:
            if pread(fd, 1, 0) in (b"", b"\0"):  # new, or a power cut took its content
                os.ftruncate(fd, 0)
                pwrite(fd, b"*\n", 0)
        finally:
            os.close(fd)
    finally:
        os.close(folder)
