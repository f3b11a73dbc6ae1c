"""Planned changes put on disk: all of one call's files, or none of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from perdure.model.envelope import ToolError
from perdure.model.fault_points import point
from perdure.storage.durable import sync_directory, sync_file
from perdure.storage.journal import Journal
from perdure.surfaces.write import moves
from perdure.surfaces.write.confine import Place, Workspace
from perdure.surfaces.write.exchange import Conflict
from perdure.surfaces.write.fidelity import Facts
from perdure.surfaces.write.identity import Expected
from perdure.surfaces.write.pending import PendingFile
from perdure.surfaces.write.store import Content, Store

Displaced = Callable[[Conflict], None]


class FileChange:
    """One file from what it is to what it shall be; None stands for no file."""

    def __init__(
        self,
        place: Place,
        before: Expected | None,
        facts: Facts | None,
        after: Content | None,
        old: Content | None,
    ) -> None:
        self.place = place
        self.before = before
        self.facts = facts
        self.after = after
        self.old = old
        self.made: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()

    def apply(self, store: Store, *, sync: bool) -> None:
        self.warnings = _put(self, self.before, self.after, store, sync=sync)

    def revert(self, store: Store, *, sync: bool) -> None:
        now = Expected(self.after.sha256) if self.after is not None else None
        _put(self, now, self.old, store, sync=sync)


def _put(
    change: FileChange, before: Expected | None, after: Content | None, store: Store, *, sync: bool
) -> tuple[str, ...]:
    place = change.place
    if after is None:
        if before is not None:
            moves.remove(place.dir_fd, place.name, before, sync=sync)
        return ()
    if place.missing:
        change.made = place.make_parents(sync=sync)
    with PendingFile(place.dir_fd, place.name, like=change.facts, sync=sync) as pending:
        store.fill(pending, after)
        landed = pending.create() if before is None else pending.replace_if(before)
    return landed.warnings


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
        keep_foreign: Displaced,
        save_foreign: Callable[[], None],
    ) -> None:
        self.seqs = seqs
        self.payload = payload
        self._changes = changes
        self._workspace = workspace
        self._store = store
        self._strict = strict
        self._keep_foreign = keep_foreign
        self._save_foreign = save_foreign

    def land(self) -> None:
        done: list[FileChange] = []
        try:
            for change in self._changes:
                change.apply(self._store, sync=self._strict)
                done.append(change)
                point("commit.file_landed")
        except ToolError as error:
            for change in reversed(done):
                self._take_back(change)
            if isinstance(error, Conflict):
                self._keep_foreign(error)
            raise
        finally:
            for change in self._changes:
                change.place.close()
        warnings = [w for change in self._changes for w in change.warnings]
        if warnings:
            self.payload["warnings"] = [*self.payload.get("warnings", []), *dict.fromkeys(warnings)]

    def _take_back(self, change: FileChange) -> None:
        try:
            change.revert(self._store, sync=self._strict)
        except Conflict as conflict:
            self._keep_foreign(conflict)  # somebody wrote to it already: theirs stays
        self._workspace.remove_directories(change.place.root, change.made)

    def failed(self, journal: Journal, error: ToolError) -> ToolError:
        for seq in self.seqs:
            journal.conclude(seq, "conflict" if isinstance(error, Conflict) else "aborted")
        self._save_foreign()
        return error

    def sync(self) -> None:
        if self._strict:
            return
        for change in self._changes:
            directory, _, name = change.place.path.rpartition("/")
            try:
                dir_fd = self._workspace.open_directory(change.place.root, directory)
            except ToolError:
                continue  # the directory is gone, and what was in it
            try:
                if change.after is not None:
                    try:
                        fd = os.open(
                            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd
                        )
                    except OSError:
                        continue  # removed or replaced since: not ours any more
                    try:
                        sync_file(fd)
                    finally:
                        os.close(fd)
                sync_directory(dir_fd)
            finally:
                os.close(dir_fd)
