"""Settling what a predecessor left undecided, before the first call is served.

| on disk | then |
|---|---|
| the new content | it landed: settled |
| the old content | it did not: it is put there now |
| after a power cut: anything that an open intent of the file made or replaced, whole or torn | likewise |
| something else, but it had landed before the process was killed | another program was there since: settled |
| what was there before, although it had landed | likewise, and ours is kept as a draft: unsynced data may be gone |
| something else | another program was there first: theirs stays, ours is kept as a draft |
| a file that was put aside and not looked at | what nobody expected goes back to its name (`set_aside`) |
| what cannot be looked at or written now | it stays open for the next try, and calls that name it are refused |

Of several open intents for one file the last is what it shall be, unless a later change of the file was settled before
them: a file whose sync failed leaves its intent open, and the next change of it does not. A killed process leaves what
the last call found or what it made. A power cut can take back any number of changes that no sync had reached, and leave
of a content a part, or zeros. A file at which the device fails waits alone: other files are served, and the next
change tries again. Where the journal fails, recovery fails: no call is served, and the next one tries again.

A transaction is whole: where one of its files is another program's, the others go back to what they were, at a later
recovery where it cannot be done now. Not so after a power cut. Then nobody knows which came first, and what was
acknowledged stays.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from perdure.platform import directories
from perdure.platform.descriptors import pread
from perdure.platform.fault_points import point
from perdure.platform.sync import sync_file
from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.fingerprint import Expected, seen
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.journal import Digest, Draft, Intent, Journal, Row
from perdure.workspace.apply import FileChange, ancestors
from perdure.workspace.contents import ContentStore
from perdure.workspace.paths.roots import Place, Roots, rooted
from perdure.workspace.recovery import displaced
from perdure.workspace.recovery.temp_cleanup import Rescue, sweep
from perdure.workspace.sync_pass import sync_directories

log = logging.getLogger(__name__)

BLOCK: Final = 4096
Failure = ToolError | StorageError | OSError
Settled = Literal["settled", "replaced", "lost"]


Waiting = dict[str, ToolError]
"""The files that a recovery could not finish, each with the reason. Their changes stay open, and the next recovery tries
again."""


def recover(roots: Roots, journal: Journal, store: ContentStore) -> Waiting:
    """Under the workspace's lock. What it does is done again if it is interrupted.

    A file that cannot be settled now waits alone. Only where the journal fails does all of it fail."""
    began = time.time()
    landed = journal.applied_watermark()
    intents = journal.intents()
    if not intents:
        return {}
    waiting = _Waiting()
    rescue = _rescue(journal, store)
    undecided = [one.row for one in intents if not _has_landed(one, landed)]
    for folder, error in (displaced.restore_displaced(roots, undecided, rescue) or {}).items():
        waiting.add_folder(intents, folder, error)
    of_path: dict[str, list[Intent]] = {}
    for intent in intents:
        of_path.setdefault(intent.row.path, []).append(intent)
    settled: dict[int, Row] = {}
    replaced: list[Row] = []
    lost: list[Row] = []
    parted: list[Row] = []
    for intent in intents:
        row, group = intent.row, of_path[intent.row.path]
        if group[-1] is not intent or row.path in waiting:
            continue
        older = {one.row.seq: one.row for one in group[:-1]}
        if journal.last_of(row.path) != row:
            settled |= {**older, row.seq: row}
        elif intent.same_boot and row.txn is not None and journal.has_lost(row.txn):
            settled |= older
            parted.append(row)
        else:
            with waiting.catch(row.path):
                result = _settle(roots, store, group, has_landed=_has_landed(intent, landed))
                if result == "lost":
                    lost.append(row)
                else:
                    settled[row.seq] = row
                if result == "replaced":
                    replaced.append(row)
                settled |= older
        point("recover.one")
    for row in (*_parted(intents, lost), *parted):
        if row.path not in waiting:
            with waiting.catch(row.path):
                _take_back(roots, store, row)
                lost.append(row)
        settled.pop(row.seq, None)
    for folder, error in (_sweep(roots, intents, rescue, began) or {}).items():
        waiting.add_folder(intents, folder, error)
    for path, error in _sync_names(roots, intents).items():
        waiting.add(path, error)

    def conclude() -> None:
        journal.settle(seq for seq, row in settled.items() if row.path not in waiting)
        for row in replaced:
            if row.path not in waiting:
                _save(journal, row, "replaced_before_recovery")
        for row in lost:
            if row.path not in waiting:
                journal.conclude(row.seq, "conflict", _draft_id(row))
                journal.record_seen(
                    row.session, row.path, row.new_sha, row.seq
                )  # it takes the file for what it wrote
                _save(journal, row, "conflict_at_recovery")

    journal.transact(conclude)
    for path, error in waiting.errors.items():
        log.error("recovery: %s waits: %s", path, error)
    for row in lost:
        log.warning(
            "recovery: row %d of %s was not applied: another program changed the file", row.seq, row.path
        )
    return waiting.errors


class _Waiting:
    """The files whose changes cannot be settled now, and why."""

    def __init__(self) -> None:
        self.errors: Waiting = {}

    def __contains__(self, path: str) -> bool:
        return path in self.errors

    def add(self, path: str, error: Failure) -> None:
        self.errors.setdefault(path, tool_error(error))

    def add_folder(self, intents: Iterable[Intent], folder: str, error: Failure) -> None:
        for intent in intents:
            if intent.row.path.rpartition("/")[0] == folder:
                self.add(intent.row.path, error)

    @contextmanager
    def catch(self, path: str) -> Iterator[None]:
        try:
            yield
        except JournalError:
            raise
        except (ToolError, StorageError, OSError) as error:
            self.add(path, error)


def _draft_id(row: Row) -> str | None:
    return f"d_{row.new_sha.hex()[:24]}" if row.new_sha is not None else None


def _save(journal: Journal, row: Row, reason: str) -> None:
    identity = _draft_id(row)
    if identity is not None and row.new_sha is not None:
        draft = Draft(identity, row.new_sha, row.bytes, row.path, reason)
        journal.save_draft(draft, row.client, row.session)


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


def _take_back(roots: Roots, store: ContentStore, row: Row) -> None:
    try:
        with roots.locate(roots.anchored(row.path), force=True) as place:
            before, facts = _look(place)
            if (before.sha256 if before is not None else None) == _hex(row.new_sha):
                after = store.find(row.old_sha.hex()) if row.old_sha is not None else None
                key = "file_mode" if row.new_sha is None else "mode_before"
                facts = metadata.from_journal(row.detail, facts, key=key)
                FileChange(place, before, facts, after).apply(store, sync=True)
    except JournalError:
        raise
    except (ToolError, StorageError) as error:
        if is_of_system(error):
            raise
        # Somebody is at it already: theirs stays.


def _settle(roots: Roots, store: ContentStore, intents: list[Intent], *, has_landed: bool) -> Settled:
    """Whether the file is now what the last of its intents says, or was before another program changed it."""
    row = intents[-1].row
    try:
        with roots.locate(roots.anchored(row.path), force=True) as place:
            before, facts = _look(place)
            found = before.sha256 if before is not None else None
            ours = _undecided(intents)
            if has_landed or (found == _hex(row.new_sha) and not _lacks_mode(facts, ours)):
                _sync(place)
                return "replaced" if _is_older(place, found, store, intents) else "settled"
            if not _is_ours(place, found, store, intents, ours):
                return "lost"
            after = store.find(row.new_sha.hex()) if row.new_sha is not None else None
            change = FileChange(place, before, _facts(facts, ours), after)
            change.apply(store, sync=True)
            if change.left is not None:
                directories.unlink(
                    change.left, dir_fd=place.dir_fd
                )  # the second try; the next recovery makes another
            return "settled"
    except JournalError:
        raise
    except (ToolError, StorageError) as error:
        if is_of_system(error):
            raise
        return "settled" if has_landed else "lost"


def _is_older(place: Place, found: str | None, store: ContentStore, intents: list[Intent]) -> bool:
    """Whether a file that had landed is again what it was before, whole or torn. Another program may have put that
    there, or the device lost what no sync had reached: a server or a disk that went away does so without a restart."""
    new = intents[-1].row.new_sha
    if new is None or found == _hex(new):
        return False
    if found in {_hex(one.row.old_sha) for one in intents}:
        return True
    return found is not None and _is_torn(place, store, new)


def _undecided(intents: list[Intent]) -> list[Row]:
    """Of the intents for a file, oldest first, those that may be on disk only in part."""
    last, after_cut = intents[-1], _is_after_cut(intents)
    return [one.row for one in intents if after_cut or one is last or _is_same_call(one.row, last.row)]


def _is_after_cut(intents: list[Intent]) -> bool:
    return not all(intent.same_boot for intent in intents)


def _facts(now: FileMetadata | None, rows: list[Row]) -> FileMetadata | None:
    """What the file shall be besides its content."""
    for row in rows:
        if row.new_sha is None:
            now = now or metadata.from_journal(row.detail)
        elif "file_mode" in row.detail:
            now = metadata.from_journal(row.detail, now if "mode_before" in row.detail else None)
    return now


def _lacks_mode(now: FileMetadata | None, rows: list[Row]) -> bool:
    """Whether only the mode of a file was to be changed, and was not."""
    before = next((row.detail["mode_before"] for row in rows if "mode_before" in row.detail), None)
    return now is not None and now.mode == before


def _is_ours(
    place: Place, found: str | None, store: ContentStore, intents: list[Intent], rows: list[Row]
) -> bool:
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


def _hex(sha: Digest | None) -> str | None:
    return sha.hex() if sha is not None else None


def _look(place: Place) -> tuple[Expected | None, FileMetadata | None]:
    if place.found is None:
        return None, None
    fd = place.open()
    try:
        return seen(fd), metadata.capture(fd)
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


def _is_torn(place: Place, store: ContentStore, sha: Digest) -> bool:
    """Whether the file is this content as a power cut leaves it: cut short, or with blocks of zeros."""
    try:
        content = store.find(sha.hex())
    except (ToolError, StorageError):
        return False
    fd = place.open()
    try:
        if os.fstat(fd).st_size > content.size:
            return False
        offset = 0
        for piece in store.pieces(content):
            for start in range(0, len(piece), BLOCK):
                want = piece[start : start + BLOCK]
                have = pread(fd, len(want), offset)
                if not want.startswith(have) and have != bytes(len(have)):
                    return False
                offset += len(want)
        return True
    finally:
        os.close(fd)


def _rescue(journal: Journal, store: ContentStore) -> Rescue:
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


def _sweep(roots: Roots, intents: Iterable[Intent], rescue: Rescue, began: float) -> dict[str, Failure]:
    """Remove temporary files beside the files that were about to change. Returns the directories where that failed."""
    failed: dict[str, Failure] = {}
    for directory in sorted({intent.row.path.rpartition("/")[0] for intent in intents}):
        try:
            dir_fd = roots.open_directory(*rooted(directory))
        except ToolError as error:
            if is_of_system(error) and error.envelope.error != "policy_violation":
                failed[directory] = error
            continue
        try:
            sweep([dir_fd], rescue, before=began)
        except JournalError:
            raise
        except PermissionError:
            continue  # a directory that may not be written any more keeps what is in it
        except (ToolError, StorageError, OSError) as error:
            failed[directory] = error
        finally:
            os.close(dir_fd)
    return failed


def _sync_names(roots: Roots, intents: Iterable[Intent]) -> dict[str, Failure]:
    """Every directory from a root to a file. Once the intents are settled nobody looks there again: what was removed
    must not come back, and whoever made a directory may have ended before its own name was durable. Returns the files
    on whose way one could not be synced."""
    failed: dict[tuple[int, str], Failure] = {}
    folders = {path: _folders(path) for path in {intent.row.path for intent in intents}}
    for root, folder in sorted({one for found in folders.values() for one in found}):
        try:
            sync_directories(roots, root, [folder])
        except PermissionError:
            continue
        except (ToolError, StorageError, OSError) as error:
            failed[root, folder] = error
    return {path: failed[folder] for path, found in folders.items() for folder in found if folder in failed}


def _folders(path: str) -> list[tuple[int, str]]:
    root, rest = rooted(path)
    return [(root, folder) for folder in ancestors(rest)]
