"""Planned changes put on disk: all of one call's files, or none of them."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from perdure.platform.fault_points import point
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import ask_user
from perdure.storage.beside import Beside, Helper
from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.metadata import Facts
from perdure.storage.files.pending import Landed, NeedsName, PendingFile
from perdure.storage.files.swap import Conflict
from perdure.storage.journal import Journal
from perdure.storage.os_errors import os_refusal
from perdure.workspace import removal
from perdure.workspace.contents import Content, Store
from perdure.workspace.paths import Place, Workspace
from perdure.workspace.sync_pass import SyncPass, folder_name

log = logging.getLogger(__name__)

LONG: Final = 1 << 20
"""From how many bytes on a content is copied in a thread of its own: nobody else's has to wait for it."""
PREPARED_MAX: Final = 128
"""Of one call, at once: each holds two descriptors."""


class FileChange:
    """One file from what it is to what it shall be; None stands for no file."""

    def __init__(
        self,
        place: Place,
        before: Expected | None,
        facts: Facts | None,
        after: Content | None,
        old: Content | None = None,
        old_facts: Facts | None = None,
    ) -> None:
        self.place = place
        self.before = before
        self.facts = facts
        self.after = after
        self.old = old
        self.old_facts = old_facts
        self.made: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.left: str | None = None
        self._pending: PendingFile | None = None

    @property
    def can_be_unseen(self) -> bool:
        """Whether it can be made ready without anything that others could see, where the file system helps."""
        return self.after is not None and not self.place.missing

    @property
    def is_long(self) -> bool:
        return self.after is not None and self.after.size >= LONG

    def prepare(self, store: Store, *, sync: bool, unseen: bool = False) -> None:
        """Everything but the name; with `unseen` not even a temporary one, or else nothing."""
        if self.after is None or self._pending is not None:
            return
        self.place.reopen()
        if self.place.missing:
            self.made = self.place.make_parents(sync=sync)
        with suppress(NeedsName):
            self._pending = self._filled(self.after, self.facts, store, sync=sync, unseen=unseen)

    def apply(self, store: Store, *, sync: bool) -> None:
        self.prepare(store, sync=sync)
        self.place.reopen()
        if (landed := self._put(self._pending, self.before, sync=sync)) is not None:
            self.warnings, self.left = landed.warnings, landed.left

    def revert(self, store: Store, *, sync: bool) -> None:
        now = Expected(self.after.sha256) if self.after is not None else None
        self.place.reopen()
        back = self._filled(self.old, self.old_facts, store, sync=sync) if self.old is not None else None
        self._put(back, now, sync=sync)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.discard()
        self.place.close()

    def _filled(
        self, content: Content, facts: Facts | None, store: Store, *, sync: bool, unseen: bool = False
    ) -> PendingFile:
        pending = PendingFile(self.place.dir_fd, self.place.name, like=facts, sync=sync, unseen=unseen)
        try:
            store.fill(pending, content)
            pending.seal()
        except BaseException:
            pending.discard()
            raise
        return pending

    def _put(self, pending: PendingFile | None, before: Expected | None, *, sync: bool) -> Landed | None:
        if pending is not None:
            with pending:
                return pending.create() if before is None else pending.replace_if(before)
        if before is not None:
            removal.remove(self.place.dir_fd, self.place.name, before, sync=sync)
        return None


class Aftermath(Protocol):
    """What a call leaves besides its files."""

    def landed(self) -> None: ...

    def displaced(self, conflict: Conflict) -> None:
        """Content of another program that has lost its name."""

    def failed(self) -> None:
        """In a transaction."""

    def drafts(self) -> list[str]:
        """Under which ids the displaced contents are kept after it."""


class CallLanding:
    """Everything one call changes, decided in the journal under `seqs`."""

    def __init__(
        self,
        changes: list[FileChange],
        seqs: list[int],
        payload: dict[str, Any],
        *,
        workspace: Workspace,
        store: Store,
        strict: bool,
        aftermath: Aftermath,
    ) -> None:
        self.seqs = seqs
        self.payload = payload
        self._changes = changes
        self._workspace = workspace
        self._store = store
        self._strict = strict
        self._aftermath = aftermath
        self.is_stuck = False
        self._is_lost = False
        self._preparing: Beside[None] | None = None

    def begin(self, helper: Helper, most: int) -> int:
        unseen = [change for change in self._changes[:most] if change.can_be_unseen]
        if any(change.is_long for change in unseen):
            self._preparing = Beside(lambda: self._prepare(unseen, unseen=True))
        elif unseen:
            self._preparing = Beside(lambda: self._prepare(unseen, unseen=True), helper.start)
        return len(unseen)

    def land(self) -> None:
        done: list[FileChange] = []
        try:
            if self._preparing is not None:
                self._preparing.result()
            # What needs space needs it now, while there is nothing to be taken back.
            self._prepare(self._changes[:PREPARED_MAX])
            for change in self._changes:
                change.apply(self._store, sync=self._strict)
                done.append(change)
                if len(self._changes) > PREPARED_MAX:
                    change.place.close()  # to take it back, it is opened again
                point("commit.file_landed")
        except Exception as error:
            self._take_back(done)
            raise self._refusal(error) from None
        finally:
            self.close()
        self._aftermath.landed()
        warnings = [w for change in self._changes for w in change.warnings]
        if warnings:
            self.payload["warnings"] = [*self.payload.get("warnings", []), *dict.fromkeys(warnings)]

    def _prepare(self, changes: list[FileChange], *, unseen: bool = False) -> None:
        for change in changes:
            change.prepare(self._store, sync=self._strict, unseen=unseen)

    def close(self) -> None:
        if self._preparing is not None:
            with suppress(Exception):
                self._preparing.result()
        for change in self._changes:
            change.close()

    def _take_back(self, done: list[FileChange]) -> None:
        for change in reversed(done):
            try:
                change.revert(self._store, sync=self._strict)
            except Conflict as conflict:
                self._keep(conflict)  # somebody wrote to it already: theirs stays
            except (ToolError, OSError) as error:
                log.error("%s cannot be taken back now: %s", change.place.path, error)
                self.is_stuck = True
        self.close()
        for root in {change.place.root for change in self._changes}:
            made = [path for change in self._changes if change.place.root == root for path in change.made]
            self._workspace.remove_directories(root, made)

    def _keep(self, conflict: Conflict) -> None:
        """What of others lost its name. What could not be put back has kept it, and waits for the next start."""
        self.is_stuck = self.is_stuck or conflict.reason == "not_put_back"
        try:
            self._aftermath.displaced(conflict)
        except (ToolError, OSError) as error:
            log.error("content of another program could not be kept: %s", error)
            self._is_lost = conflict.reason != "not_put_back"

    def _refusal(self, error: Exception) -> Exception:
        if isinstance(error, Conflict):
            self._keep(error)
        if self.is_stuck:
            return refuse(
                "write_corruption",
                "not_taken_back",
                "a part of the change is on disk and could not be taken back; the next start of Perdure completes it.",
                next_step=ask_user("to restart Perdure, which completes the change."),
                suggested_action="ask_user",
            )
        if self._is_lost:
            return refuse(
                "write_corruption",
                "displaced_not_kept",
                "another program wrote to the file at the same moment, and some of its content could not be kept.",
                next_step=ask_user("to compare the file with what the other program wrote."),
                suggested_action="ask_user",
            )
        return os_refusal(error) if isinstance(error, OSError) else error

    def failed(self, journal: Journal, error: Exception) -> None:
        self._aftermath.failed()
        if self.is_stuck:
            return  # the intents stay open: all of it is better than a part
        for seq in self.seqs:
            journal.conclude(seq, "conflict" if isinstance(error, Conflict) else "aborted")

    def concluded(self, error: Exception) -> None:
        if isinstance(error, ToolError) and (drafts := self._aftermath.drafts()):
            context = {**error.envelope.context, "displaced": drafts}
            error.envelope = msgspec.structs.replace(error.envelope, context=context)

    def begin_sync(self, syncing: SyncPass) -> None:
        if not self._strict:
            for change in self._changes:
                syncing.begin(self._workspace, change)

    def sync(self, syncing: SyncPass) -> None:
        """The files, unless they were synced as they landed, and every directory in which a name changed."""
        names = [(change.place.root, change.place.path) for change in self._changes]
        folders = [(root, folder_name(path)) for root, path in names]
        newest = max(self.seqs)
        for name in (*names, *folders):
            syncing.failed.check(name, newest)
        try:
            for change in self._changes:
                if change.left is not None:
                    syncing.unlink(self._workspace, change.place, change.left)
                if not self._strict:
                    syncing.sync(self._workspace, change, self._store)
            syncing.sync_names(self._workspace, self._changes)
        except (OSError, ToolError) as error:
            for name in names:
                syncing.failed.add(name)
            log.error(
                "row %d is not durable: %s: %s", newest, ", ".join(path for _, path in names[:5]), error
            )
            raise
        for name in (*names, *folders):
            syncing.failed.forget(name, newest)


def ancestors(path: str) -> list[str]:
    """The directories from a root to a file, the root itself as an empty path."""
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]
