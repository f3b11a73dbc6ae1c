"""Settling what a predecessor left undecided, before the first call is served.

| on disk | then |
|---|---|
| the new content | it landed: settled |
| the old content | it did not: it is put there now |
| after a power cut: anything that an open intent of the file made or replaced, whole or torn | likewise |
| something else, but it had landed before the process was killed | another program was there since: settled |
| something else | another program was there first: theirs stays, ours is kept as a draft |
| a file that was put aside and not looked at | what nobody expected goes back to its name (`set_aside`) |
| what may not be looked at or written now | it stays open for the next start |

Of several open intents for one file the last is what it shall be, unless a later change of the file was settled before
them: a file whose sync failed leaves its intent open, and the next change of it does not. A killed process leaves what
the last call found or what it made. A power cut can take back any number of changes that no sync had reached, and leave
of a content a part, or zeros. Where the device or the journal fails, recovery fails: no call is served, and the next
one tries again.

A transaction is whole: where one of its files is another program's, the others go back to what they were. Not so after
a power cut. Then nobody knows which came first, and what was acknowledged stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Literal

from perdure.model.envelope import ToolError
from perdure.model.fault_points import point
from perdure.storage.durable import sync_file
from perdure.storage.files import fidelity
from perdure.storage.files.fidelity import Facts
from perdure.storage.files.identity import Expected, seen
from perdure.storage.journal import Draft, Intent, Journal, JournalError, Row, Sha
from perdure.storage.os_errors import is_of_system
from perdure.surfaces.write import set_aside
from perdure.surfaces.write.confine import Place, Workspace, rooted
from perdure.surfaces.write.landing import FileChange, ancestors
from perdure.surfaces.write.store import Store
from perdure.surfaces.write.sweep import Rescue, sweep
from perdure.surfaces.write.syncing import sync_directories

BLOCK: Final = 4096
Settled = Literal["settled", "lost", "open"]


def recover(workspace: Workspace, journal: Journal, store: Store) -> None:
    """Under the workspace's lock. What it does is done again if it is interrupted."""
    began = time.time()
    landed = journal.landed()
    intents = journal.intents()
    if not intents:
        return
    rescue = _rescue(journal, store)
    set_aside.put_back(workspace, [one.row for one in intents if not _has_landed(one, landed)], rescue)
    of_path: dict[str, list[Intent]] = {}
    for intent in intents:
        of_path.setdefault(intent.row.path, []).append(intent)
    settled: list[int] = []
    lost: list[Row] = []
    for intent in intents:
        group = of_path[intent.row.path]
        is_last = group[-1] is intent and journal.last_of(intent.row.path) == intent.row
        has_landed = _has_landed(intent, landed)
        found = _settle(workspace, store, group, has_landed=has_landed) if is_last else "settled"
        if found == "settled":
            settled.append(intent.row.seq)
        elif found == "lost":
            lost.append(intent.row)
        point("recover.one")
    for row in _parted(intents, lost):
        _take_back(workspace, store, row)
        settled.remove(row.seq)
        lost.append(row)
    _sweep(workspace, intents, rescue, began)
    _sync_names(workspace, intents)

    def conclude() -> None:
        journal.settle(settled)
        for row in lost:
            draft = f"d_{row.new_sha.hex()[:24]}" if row.new_sha is not None else None
            journal.conclude(row.seq, "conflict", draft)
            journal.saw(row.session, row.path, row.new_sha, row.seq)  # it takes the file for what it wrote
            if draft is not None and row.new_sha is not None:
                kept = Draft(draft, row.new_sha, row.bytes, row.path, "conflict_at_recovery")
                journal.save_draft(kept, row.client, row.session)

    journal.transact(conclude)


def _has_landed(intent: Intent, landed: int) -> bool:
    return intent.same_boot and intent.row.seq <= landed


def _parted(intents: list[Intent], lost: list[Row]) -> list[Row]:
    """What has to go back, newest first: the rows of transactions that lost another."""
    txns = {row.txn for row in lost if row.txn is not None}
    gone = {row.seq for row in lost}
    return [
        one.row
        for one in reversed(intents)
        if one.same_boot and one.row.txn in txns and one.row.seq not in gone
    ]


def _take_back(workspace: Workspace, store: Store, row: Row) -> None:
    try:
        with workspace.locate(workspace.anchored(row.path), force=True) as place:
            before, facts = _look(place)
            if (before.sha256 if before is not None else None) == _hex(row.new_sha):
                after = store.find(row.old_sha.hex()) if row.old_sha is not None else None
                key = "file_mode" if row.new_sha is None else "mode_before"
                facts = fidelity.recalled(row.detail, facts, key=key)
                FileChange(place, before, facts, after).apply(store, sync=True)
    except JournalError:
        raise
    except ToolError as error:
        if is_of_system(error):
            raise
        # Somebody is at it already: theirs stays.


def _settle(workspace: Workspace, store: Store, intents: list[Intent], *, has_landed: bool) -> Settled:
    """Whether the file is now what the last of its intents says, or was before another program changed it."""
    row = intents[-1].row
    try:
        with workspace.locate(workspace.anchored(row.path), force=True) as place:
            before, facts = _look(place)
            found = before.sha256 if before is not None else None
            ours = _undecided(intents)
            if has_landed or (found == _hex(row.new_sha) and not _lacks_mode(facts, ours)):
                _sync(place)
                return "settled"
            if not _is_ours(place, found, store, intents, ours):
                return "lost"
            after = store.find(row.new_sha.hex()) if row.new_sha is not None else None
            change = FileChange(place, before, _facts(facts, ours), after)
            change.apply(store, sync=True)
            return "settled" if change.left is None or _is_unlinked(place, change.left) else "open"
    except JournalError:
        raise
    except ToolError as error:
        if not is_of_system(error):
            return "settled" if has_landed else "lost"
        if error.envelope.error == "policy_violation":
            return "open"
        raise


def _is_unlinked(place: Place, left: str) -> bool:
    """The second try. After another failure the next start sweeps what is left."""
    try:
        os.unlink(left, dir_fd=place.dir_fd)
    except OSError:
        return False
    return True


def _undecided(intents: list[Intent]) -> list[Row]:
    """Of the intents for a file, oldest first, those of which nobody knows how much of them is on disk."""
    last, after_cut = intents[-1], _is_after_cut(intents)
    return [one.row for one in intents if after_cut or one is last or _is_same_call(one.row, last.row)]


def _is_after_cut(intents: list[Intent]) -> bool:
    return not all(intent.same_boot for intent in intents)


def _facts(now: Facts | None, rows: list[Row]) -> Facts | None:
    """What the file shall be besides its content."""
    for row in rows:
        if row.new_sha is None:
            now = now or fidelity.recalled(row.detail)
        elif "file_mode" in row.detail:
            now = fidelity.recalled(row.detail, now if "mode_before" in row.detail else None)
    return now


def _lacks_mode(now: Facts | None, rows: list[Row]) -> bool:
    """Whether only the mode of a file was to be changed, and was not."""
    before = next((row.detail["mode_before"] for row in rows if "mode_before" in row.detail), None)
    return now is not None and now.mode == before


def _is_ours(place: Place, found: str | None, store: Store, intents: list[Intent], rows: list[Row]) -> bool:
    """Whether the file is what it was before its last intent, or as a power cut can leave what we made of it."""
    known = [sha for row in rows for sha in (row.old_sha, row.new_sha)]
    if found in map(_hex, known):
        return True
    return (
        _is_after_cut(intents)
        and found is not None
        and any(_is_torn(place, store, sha) for sha in dict.fromkeys(known) if sha is not None)
    )


def _is_same_call(one: Row, other: Row) -> bool:
    return one.txn is not None and one.txn == other.txn


def _hex(sha: Sha | None) -> str | None:
    return sha.hex() if sha is not None else None


def _look(place: Place) -> tuple[Expected | None, Facts | None]:
    if place.found is None:
        return None, None
    fd = place.open()
    try:
        return seen(fd), fidelity.capture(fd)
    finally:
        os.close(fd)


def _sync(place: Place) -> None:
    if place.found is None:
        return
    fd = place.open()
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def _is_torn(place: Place, store: Store, sha: Sha) -> bool:
    """Whether the file is this content as a power cut leaves it: cut short, or with blocks of zeros."""
    try:
        content = store.find(sha.hex())
    except ToolError:
        return False
    fd = place.open()
    try:
        if os.fstat(fd).st_size > content.size:
            return False
        offset = 0
        for piece in store.pieces(content):
            for start in range(0, len(piece), BLOCK):
                want = piece[start : start + BLOCK]
                have = os.pread(fd, len(want), offset)
                if not want.startswith(have) and have != bytes(len(have)):
                    return False
                offset += len(want)
        return True
    finally:
        os.close(fd)


def _rescue(journal: Journal, store: Store) -> Rescue:
    def rescue(fd: int) -> bool:
        """Somebody's only copy, perhaps: it goes when it is kept as a draft, and not before."""
        content = store.take_file(fd)
        kept = Draft(f"d_{content.sha256[:24]}", content.digest, content.size, "", "found_at_recovery")

        def keep() -> None:
            store.record(content, by_row=False)
            journal.save_draft(kept, "", "")

        journal.transact(keep)
        return True

    return rescue


def _sweep(workspace: Workspace, intents: Iterable[Intent], rescue: Rescue, began: float) -> None:
    """Remove temporary files beside the files that were about to change."""
    for directory in sorted({intent.row.path.rpartition("/")[0] for intent in intents}):
        try:
            dir_fd = workspace.open_directory(*rooted(directory))
        except ToolError as error:
            if is_of_system(error) and error.envelope.error != "policy_violation":
                raise
            continue
        try:
            sweep([dir_fd], rescue, before=began)
        except PermissionError:
            continue  # a directory that may not be written any more keeps what is in it
        finally:
            os.close(dir_fd)


def _sync_names(workspace: Workspace, intents: Iterable[Intent]) -> None:
    """Every directory from a root to a file. Once the intents are settled nobody looks there again: what was removed
    must not come back, and whoever made a directory may have ended before its own name was durable."""
    files = {rooted(intent.row.path) for intent in intents}
    for root, folder in sorted({(root, folder) for root, path in files for folder in ancestors(path)}):
        with suppress(PermissionError):
            sync_directories(workspace, root, [folder])
