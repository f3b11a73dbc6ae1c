"""Settles every intent that a killed process left open, before the first call is served. "File" includes links and
directories.

| on disk | then |
|---|---|
| the new content | it landed: settled |
| the old content | it did not: it is put there now |
| after a power cut: anything that an open intent of the file made or replaced, whole or torn | likewise |
| something else, but it had landed before the process was killed | another program was there since: settled |
| what was there before, although it had landed | likewise, and ours is kept as a draft: unsynced data may be gone |
| something else | another program was there first: theirs stays, ours is kept as a draft |
| a displaced file that was not yet compared | if it is not the expected one, it goes back to its name (`displaced`) |
| what cannot be looked at or written now | it stays open for the next try, and calls that name it are refused |

Of several open intents for one file the last is what it shall be, unless a later change of the file was settled before
them: a file whose sync failed leaves its intent open, and the next change of it does not. A killed process leaves what
the last call found or what it made. A power cut can take back any number of changes that no sync had reached, and leave
of a content a part, or zeros. A file at which the device fails waits alone: other files are served, and the next
change tries again. Where the journal fails, recovery fails: no call is served, and the next one tries again.

A transaction is whole: where one of its files is another program's, the others go back to what they were, at a later
recovery where it cannot be done now. Not so after a power cut: the order of changes is unknown
then, and what was acknowledged stays.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal

from perdure.platform import directories
from perdure.platform.descriptors import pread
from perdure.platform.fault_points import point
from perdure.platform.sync import sync_file
from perdure.present.tool_errors import is_of_system, tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.files.pending_entries import ACCESS, set_directory_mode
from perdure.storage.journal import Draft, Intent, Journal, Row
from perdure.workspace import entries
from perdure.workspace.apply import ModeChange, ancestors, entry_changes, sync_entry
from perdure.workspace.contents import ContentStore
from perdure.workspace.entries import EntryState, Look
from perdure.workspace.paths.roots import Place, Roots, rooted
from perdure.workspace.recovery import displaced
from perdure.workspace.recovery.temp_cleanup import Rescue, sweep
from perdure.workspace.sync_pass import sync_directories

log = logging.getLogger(__name__)

BLOCK: Final = 4096
Failure = ToolError | StorageError | OSError
Settled = Literal["settled", "replaced", "lost"]


Modes = dict[str, int]
"""Directories whose modes take their owner's access away, which is done after all that is in them."""
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
    # Before anything is settled: a directory is removed only when it is empty.
    for folder, error in (_sweep(roots, intents, rescue, began) or {}).items():
        waiting.add_folder(intents, folder, error)
    of_path: dict[str, list[Intent]] = {}
    for intent in intents:
        of_path.setdefault(intent.row.path, []).append(intent)
    settled: dict[int, Row] = {}
    closing = _open_directories(roots, undecided, waiting)
    replaced: list[Row] = []
    lost: list[Row] = []
    parted: list[Row] = []
    for intent in sorted((group[-1] for group in of_path.values()), key=lambda one: _order(one.row)):
        row, group = intent.row, of_path[intent.row.path]
        if row.path in waiting:
            continue
        older = {one.row.seq: one.row for one in group[:-1]}
        if journal.last_of(row.path) != row:
            settled |= {**older, row.seq: row}
        elif intent.same_boot and row.txn is not None and journal.has_lost(row.txn):
            settled |= older
            parted.append(row)
        else:
            with waiting.catch(row.path):
                result = _settle(roots, store, group, closing, has_landed=_has_landed(intent, landed))
                if result == "lost":
                    lost.append(row)
                else:
                    settled[row.seq] = row
                if result == "replaced":
                    replaced.append(row)
                settled |= older
        point("recover.one")
    for row in _ordered_back((*_parted(intents, lost), *parted)):
        if row.path not in waiting:
            with waiting.catch(row.path):
                _take_back(roots, store, row, closing)
                lost.append(row)
        settled.pop(row.seq, None)
    for path in sorted(closing, key=lambda path: path.count("/"), reverse=True):
        with waiting.catch(path):
            _set_mode(roots, path, closing[path])
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


def _order(row: Row) -> tuple[int, int]:
    """As the changes of a call are made: what is new from the outermost on, then what is removed from the innermost on."""
    return _step(entries.state_before(row), entries.state_after(row), row.path)


def _ordered_back(rows: Iterable[Row]) -> list[Row]:
    """In the order in which rows are taken back; those of one file newest first, as they are given."""
    of_path: dict[str, list[Row]] = {}
    for row in rows:
        of_path.setdefault(row.path, []).append(row)

    def order(group: list[Row]) -> tuple[int, int]:
        return _step(entries.state_after(group[0]), entries.state_before(group[-1]), group[0].path)

    return [row for group in sorted(of_path.values(), key=order) for row in group]


def _step(before: EntryState | None, after: EntryState | None, path: str) -> tuple[int, int]:
    depth = path.count("/")
    empties = (
        before is not None and before.kind == "directory" and (after is None or after.kind != "directory")
    )
    return (1, -depth) if after is None or empties else (0, depth)


def _draft_id(row: Row) -> str | None:
    """Of a regular file: the target of a link is in its row, and a directory has no content."""
    is_file = row.new_sha is not None and "kind" not in row.detail
    return f"d_{row.new_sha.hex()[:24]}" if row.new_sha is not None and is_file else None


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


def _take_back(roots: Roots, store: ContentStore, row: Row, closing: Modes) -> None:
    try:
        with roots.locate_entry(row.path) as place:
            found = entries.look(place)
            if found.state == entries.state_after(row):
                mode = entries.mode_before(row)
                facts = metadata.from_journal({"mode": mode}, found.facts, key="mode")
                closing.pop(row.path, None)
                later = _make(place, found, entries.state_before(row), facts, store)
                if later is not None:
                    closing[row.path] = later
    except JournalError:
        raise
    except (ToolError, StorageError) as error:
        if is_of_system(error):
            raise
        # Another program has changed it already: its content stays.


def _settle(
    roots: Roots, store: ContentStore, intents: list[Intent], closing: Modes, *, has_landed: bool
) -> Settled:
    """Whether the file is now what the last of its intents says, or was before another program changed it."""
    row = intents[-1].row
    try:
        with roots.locate_entry(row.path) as place:
            found = entries.look(place)
            wanted = entries.state_after(row)
            ours = _undecided(intents)
            if has_landed or (found.state == wanted and not _lacks_mode(found, ours)):
                _sync(place)
                return "replaced" if _is_older(place, found.state, store, intents) else "settled"
            if not _is_ours(place, found.state, store, intents, ours):
                return "lost"
            mode = _make(place, found, wanted, _facts(found.facts, ours), store)
            if wanted is not None and wanted.kind == "directory":
                closing.pop(row.path, None)
            if mode is not None:
                closing[row.path] = mode
            return "settled"
    except JournalError:
        raise
    except (ToolError, StorageError) as error:
        if is_of_system(error):
            raise
        return "settled" if has_landed else "lost"


def _make(
    place: Place, found: Look, wanted: EntryState | None, facts: FileMetadata | None, store: ContentStore
) -> int | None:
    """Put at a place what shall be there. Returns the mode that a directory gets later."""
    for change in entry_changes(
        place,
        found.expected,
        facts,
        entries.content_of(wanted, store),
        old_facts=found.facts,
        kind=wanted.kind if wanted is not None else "file",
        old_kind=found.state.kind if found.state is not None else "file",
    ):
        if isinstance(change, ModeChange) and not change.grants_access:
            return change.mode
        change.apply(store, sync=True)
        if change.left is not None:
            # The second try; the next recovery makes another.
            directories.unlink(change.left, dir_fd=place.dir_fd)
    return None


def _open_directories(roots: Roots, rows: list[Row], waiting: _Waiting) -> Modes:
    """Give access to the directories that are to go: what is in them goes first. Returns the modes that they had."""
    modes: Modes = {}
    for row in rows:
        mode = entries.mode_before(row)
        if mode is None or mode & ACCESS == ACCESS or not _empties(row):
            continue
        with waiting.catch(row.path), roots.locate_entry(row.path) as place:
            if entries.look_mode(place) == mode:
                set_directory_mode(place.dir_fd, place.name, mode | ACCESS)
                modes[row.path] = mode
    return modes


def _empties(row: Row) -> bool:
    """Whether a directory goes, or becomes something else."""
    before, after = entries.state_before(row), entries.state_after(row)
    is_directory = before is not None and before.kind == "directory"
    return is_directory and (after is None or after.kind != "directory")


def _set_mode(roots: Roots, path: str, mode: int) -> None:
    with roots.locate_entry(path) as place:
        if place.found is not None and entries.kind_of(place.found) == "directory":
            set_directory_mode(place.dir_fd, place.name, mode)
            _sync(place)


def _is_older(place: Place, found: EntryState | None, store: ContentStore, intents: list[Intent]) -> bool:
    """Whether a file that had landed is again what it was before, whole or torn. Another program may have put that
    there, or the device lost what no sync had reached: a server or a disk that went away does so without a restart."""
    new = entries.state_after(intents[-1].row)
    if new is None or new.kind == "directory" or found == new:
        return False
    if found in {entries.state_before(one.row) for one in intents}:
        return True
    return _is_torn(place, found, store, new)


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


def _lacks_mode(found: Look, rows: list[Row]) -> bool:
    """Whether only the mode was to be changed, and was not. A directory gets its mode after all that is in it."""
    if found.facts is None or found.state is None:
        return False
    if found.state.kind == "directory":
        return bool(found.facts.mode != rows[-1].detail.get("file_mode", found.facts.mode))
    before = next((row.detail["mode_before"] for row in rows if "mode_before" in row.detail), None)
    return found.facts.mode == before


def _is_ours(
    place: Place, found: EntryState | None, store: ContentStore, intents: list[Intent], rows: list[Row]
) -> bool:
    """Whether the file is what it was before its last intent, or as a power cut can leave what we made of it."""
    known = {state: None for row in rows for state in (entries.state_before(row), entries.state_after(row))}
    if found in known:
        return True
    return _is_after_cut(intents) and any(
        _is_torn(place, found, store, state) for state in known if state is not None
    )


def _is_same_call(one: Row, other: Row) -> bool:
    return one.txn is not None and one.txn == other.txn


def _sync(place: Place) -> None:
    if place.found is None or entries.kind_of(place.found) == "link":
        return
    if entries.kind_of(place.found) == "directory":
        with suppress(PermissionError):  # one that may not be opened for reading
            sync_entry(place.dir_fd, place.name)
        return
    fd = place.open()
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def _is_torn(place: Place, found: EntryState | None, store: ContentStore, state: EntryState) -> bool:
    """Whether the file is this content as a power cut leaves it: cut short, or with blocks of zeros."""
    if found is None or found.kind != "file" or state.kind != "file":
        return False
    try:
        content = store.find(state.sha.hex())
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
    def rescue(found: int | bytes) -> bool:
        """It may be the only copy of another program's content: remove it only after it is kept as a draft."""
        content = store.take_file(found) if isinstance(found, int) else store.take(found)
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
    """Sync every directory from a root to a file. Once the intents are settled recovery does not look there again: a removed
    file must not come back, and a process may have ended before the name of a new directory was durable. Returns the files
    for which a directory could not be synced."""
    failed: dict[tuple[int, str], Failure] = {}
    folders = {path: _folders(path) for path in {intent.row.path for intent in intents}}
    for intent in intents:
        if intent.row.detail.get("kind") == "directory":  # its mode
            folders[intent.row.path].append(rooted(intent.row.path))
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
