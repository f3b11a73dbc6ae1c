"""Settling what a predecessor left undecided, before the first call is served.

| on disk | then |
|---|---|
| the new content | it landed: settled |
| the old content | it did not: it is put there now |
| torn by a power cut | likewise: what is there is a part of the new content, or zeros |
| something else | another program was there since: theirs stays, ours is kept as a draft |

Of several open intents for one file only the last can be on disk; the earlier ones led to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from perdure.model.envelope import ToolError
from perdure.model.fault_points import point
from perdure.storage.journal import Draft, Intent, Journal, Row
from perdure.surfaces.write import fidelity
from perdure.surfaces.write.confine import Place, Workspace
from perdure.surfaces.write.fidelity import Facts
from perdure.surfaces.write.identity import Expected, seen
from perdure.surfaces.write.landing import FileChange
from perdure.surfaces.write.store import Content, Store
from perdure.surfaces.write.sweep import sweep
from perdure.surfaces.write.tree import Tree


def recover(workspace: Workspace, journal: Journal, store: Store) -> None:
    """Under the workspace's lock. What it does is done again if it is interrupted."""
    began = time.time()
    intents = journal.intents()
    if not intents:
        return
    last: dict[str, Intent] = {intent.row.path: intent for intent in intents}
    settled: list[int] = []
    lost: list[Row] = []
    tree = Tree(workspace, store, journal, client="", session="")
    for intent in intents:
        if last[intent.row.path] is not intent or _settle(workspace, tree, store, intent):
            settled.append(intent.row.seq)
        else:
            lost.append(intent.row)
        point("recover.one")
    _sweep(workspace, journal, store, intents, began)

    def conclude() -> None:
        journal.settle(settled)
        for row in lost:
            draft = f"d_{row.new_sha.hex()[:24]}" if row.new_sha is not None else None
            journal.conclude(row.seq, "conflict", draft)
            if draft is not None and row.new_sha is not None:
                kept = Draft(draft, row.new_sha, row.bytes, row.path, "conflict_at_recovery")
                journal.save_draft(kept, row.client, row.session)

    journal.transact(conclude)


def _settle(workspace: Workspace, tree: Tree, store: Store, intent: Intent) -> bool:
    """Whether the file is now what the row says."""
    row = intent.row
    try:
        place = workspace.locate(tree.anchored(row.path), force=True)
    except ToolError:
        return False
    with place:
        before, facts = _look(place)
        found = before.sha256 if before is not None else None
        wanted = row.new_sha.hex() if row.new_sha is not None else None
        was = row.old_sha.hex() if row.old_sha is not None else None
        if found == wanted:
            _sync(place)
            return True
        after = store.find(wanted) if wanted is not None else None
        torn = (
            before is not None
            and after is not None
            and not intent.same_boot
            and _is_torn(place, store, after)
        )
        if found != was and not torn:
            return False
        try:
            FileChange(place, before, facts, after, None).apply(store, sync=True)
        except ToolError:
            return False
        return True


def _look(place: Place) -> tuple[Expected | None, Facts | None]:
    if place.found is None:
        return None, None
    fd = place.open()
    try:
        return seen(fd), fidelity.capture(fd)
    finally:
        os.close(fd)


def _sync(place: Place) -> None:
    from perdure.storage.durable import sync_directory, sync_file

    if place.found is not None:
        fd = place.open()
        try:
            sync_file(fd)
        finally:
            os.close(fd)
    if not place.missing:
        sync_directory(place.dir_fd)


def _is_torn(place: Place, store: Store, after: Content) -> bool:
    """Whether the file is the new content as a power cut leaves it: cut short, or with blocks of zeros."""
    fd = place.open()
    try:
        size = os.fstat(fd).st_size
        if size > after.size:
            return False
        offset = 0
        for piece in store.pieces(after):
            for start in range(0, len(piece), 4096):
                want = piece[start : start + 4096]
                have = os.pread(fd, len(want), offset)
                if have not in (want, bytes(len(have))) and not (
                    len(have) < len(want) and want.startswith(have)
                ):
                    return False
                offset += len(want)
        return True
    finally:
        os.close(fd)


def _sweep(
    workspace: Workspace, journal: Journal, store: Store, intents: Iterable[Intent], began: float
) -> None:
    """Remove temporary files beside the files that were about to change."""
    tree_paths = {intent.row.path.rpartition("/")[0] for intent in intents}

    def rescue(fd: int) -> bool:
        """Somebody's only copy, perhaps: it goes when it is kept as a draft, and not before."""
        content = store.take_file(fd)
        kept = Draft(f"d_{content.sha256[:24]}", content.digest, content.size, "", "found_at_recovery")

        def keep() -> None:
            store.record(content)
            journal.save_draft(kept, "", "")

        journal.transact(keep)
        return True

    for directory in sorted(tree_paths):
        root, rest = _rooted(directory)
        try:
            dir_fd = workspace.open_directory(root, rest)
        except ToolError:
            continue
        try:
            sweep([dir_fd], rescue, before=began)
        finally:
            os.close(dir_fd)


def _rooted(path: str) -> tuple[int, str]:
    first, _, rest = path.partition("/")
    return (int(first[1:]), rest) if first.startswith("@") and first[1:].isdigit() else (0, path)
