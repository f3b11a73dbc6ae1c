"""What Perdure keeps on this machine, and how much room it takes: stores of workspaces, shared state, logs, caches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.storage.sqlite import read_only
from perdure.storage.user_dirs import data_dir, state_dir
from perdure.storage.workspace_store import JOURNAL, StorePlace, read_record, store_folders


class StoreUsage(msgspec.Struct, frozen=True):
    """One store. `is_orphan`: nothing is at the path of its workspace any more."""

    workspace: str
    store: str
    is_orphan: bool
    journal_bytes: int
    contents_bytes: int
    """Contents that are files of their own. Small ones are in the journal."""
    drafts: int
    draft_bytes: int
    scratch: int
    scratch_bytes: int
    tracked: int
    """Files that the time machine covers. Their contents are part of the journal and of the contents."""
    tracked_bytes: int
    free_bytes: int
    """In the journal, used by the next writes."""
    newest: int | None

    @property
    def bytes(self) -> int:
        return self.journal_bytes + self.contents_bytes


def store_usages(here: StorePlace) -> list[StoreUsage]:
    """Every store of this user, the largest first. `here` may be one in its workspace."""
    folders = {folder: str(read_record(folder).get("root") or "") for folder in store_folders()}
    if os.path.lexists(here.journal):
        folders[here.folder] = here.root
    found = [
        _usage(root, folder)
        for folder, root in folders.items()
        if os.path.lexists(os.path.join(folder, JOURNAL))
    ]
    return sorted(found, key=lambda one: one.bytes, reverse=True)


def _usage(root: str, folder: str) -> StoreUsage:
    known = read_only.journal_usage(os.path.join(folder, JOURNAL))
    drafts = known.get("drafts", {"count": 0, "bytes": 0})
    shelf = known.get("shelf", {}).get("scratch", {"count": 0, "bytes": 0})
    tracked = known.get("tracked", {"count": 0, "bytes": 0})
    return StoreUsage(
        root,
        folder,
        bool(root) and not os.path.lexists(root),
        sum(_size(path) for path in _files(folder) if os.path.dirname(path) == folder),
        tree_bytes(os.path.join(folder, "blobs")),
        drafts["count"],
        drafts["bytes"],
        shelf["count"],
        shelf["bytes"],
        tracked["count"],
        tracked["bytes"],
        known.get("free_bytes", 0),
        known.get("newest"),
    )


def is_gone_for_good(usage: StoreUsage) -> bool:
    """Whether the folder was removed, and is not only on a disk that is not mounted now."""
    parent = os.path.dirname(usage.workspace)
    try:
        return usage.is_orphan and os.stat(parent).st_dev == read_record(usage.store).get("device")
    except OSError:
        return False


def others() -> dict[str, int]:
    """What belongs to no workspace, in bytes."""
    state = os.path.join(data_dir(), "state.db")
    return {
        "state": sum(_size(state + ending) for ending in ("", "-wal", "-shm")),
        "logs": tree_bytes(os.path.join(state_dir(), "log")),
        "caches": sum(tree_bytes(os.path.join(state_dir(), name)) for name in ("cache", "catalogs", "tools")),
        "backups": tree_bytes(os.path.join(state_dir(), "backups")),
        "sessions": tree_bytes(os.path.join(state_dir(), "serve")),
    }


def tree_bytes(folder: str) -> int:
    return sum(map(_size, _files(folder)))


def _files(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def fields(usage: StoreUsage) -> dict[str, Any]:
    return {**msgspec.structs.asdict(usage), "bytes": usage.bytes}
