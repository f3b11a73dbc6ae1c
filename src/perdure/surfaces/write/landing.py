"""Planned changes put on disk: all of one call's files, or none of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

import msgspec

from perdure.model.envelope import ToolError, refuse
from perdure.model.fault_points import point
from perdure.storage.durable import close_quietly, start_writing, sync_directory, sync_file
from perdure.storage.files import fidelity
from perdure.storage.files.exchange import Conflict
from perdure.storage.files.fidelity import Facts
from perdure.storage.files.identity import Expected
from perdure.storage.files.pending import Landed, PendingFile
from perdure.storage.journal import Journal
from perdure.storage.os_errors import os_refusal
from perdure.surfaces.write import removal
from perdure.surfaces.write.confine import Place, Workspace
from perdure.surfaces.write.store import Content, Store

_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""How a name answers that is not the file any more: removed, or replaced by something else."""
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

    def prepare(self, store: Store, *, sync: bool) -> None:
        """Everything but the name."""
        if self.after is None or self._pending is not None:
            return
        if self.place.missing:
            self.made = self.place.make_parents(sync=sync)
        self._pending = self._filled(self.after, self.facts, store, sync=sync)

    def apply(self, store: Store, *, sync: bool) -> None:
        self.prepare(store, sync=sync)
        if (landed := self._put(self._pending, self.before, sync=sync)) is not None:
            self.warnings, self.left = landed.warnings, landed.left

    def revert(self, store: Store, *, sync: bool) -> None:
        now = Expected(self.after.sha256) if self.after is not None else None
        back = self._filled(self.old, self.old_facts, store, sync=sync) if self.old is not None else None
        self._put(back, now, sync=sync)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.discard()
        self.place.close()

    def _filled(self, content: Content, facts: Facts | None, store: Store, *, sync: bool) -> PendingFile:
        pending = PendingFile(self.place.dir_fd, self.place.name, like=facts, sync=sync)
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

    def land(self) -> None:
        done: list[FileChange] = []
        try:
            # What needs space needs it now, while there is nothing to be taken back.
            for change in self._changes[:PREPARED_MAX]:
                change.prepare(self._store, sync=self._strict)
            for change in self._changes:
                change.apply(self._store, sync=self._strict)
                done.append(change)
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

    def close(self) -> None:
        for change in self._changes:
            change.close()

    def _take_back(self, done: list[FileChange]) -> None:
        for change in reversed(done):
            try:
                change.revert(self._store, sync=self._strict)
            except Conflict as conflict:
                self._keep(conflict)  # somebody wrote to it already: theirs stays
            except (ToolError, OSError):
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
        except (ToolError, OSError):
            self._is_lost = conflict.reason != "not_put_back"

    def _refusal(self, error: Exception) -> Exception:
        if isinstance(error, Conflict):
            self._keep(error)
        if self.is_stuck:
            return refuse(
                "write_corruption",
                "not_taken_back",
                "a part of the change is on disk and cannot be taken back now; the next start completes it",
                suggested_action="ask_user",
            )
        if self._is_lost:
            return refuse(
                "write_corruption",
                "displaced_not_kept",
                "another program wrote to the file meanwhile, and some of its content could not be kept",
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

    def begin_sync(self) -> None:
        """Let the device begin with the files, so that many are waited for at once."""
        for change in self._changes:
            if change.after is not None and not self._strict:
                with _opened_file(self._workspace, change.place) as (fd, _):
                    if fd is not None:
                        start_writing(fd)

    def sync(self, synced: set[tuple[int, str]]) -> None:
        """The files, unless they were synced as they landed, and every directory in which a name changed, once."""
        for change in self._changes:
            place = change.place
            if change.left is not None:
                _unlink_at(self._workspace, place, change.left)
                synced.discard((place.root, os.path.dirname(place.path)))
            if change.after is not None and not self._strict:
                _sync_at(self._workspace, place, change.after, self._store)
        for change in self._changes:
            root = change.place.root
            folders = {os.path.dirname(path) for path in (change.place.path, *change.made)}
            sync_directories(self._workspace, root, [path for path in folders if (root, path) not in synced])
            synced |= {(root, path) for path in folders}


def ancestors(path: str) -> list[str]:
    """The directories from a root to a file, the root itself as an empty path."""
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]


def sync_directories(workspace: Workspace, root: int, paths: Iterable[str]) -> None:
    """Make names durable. A directory that is gone has none left to lose."""
    for path in paths:
        with _opened(workspace, root, path) as dir_fd:
            if dir_fd is not None:
                sync_directory(dir_fd)


@contextmanager
def _opened_file(workspace: Workspace, place: Place) -> Iterator[tuple[int | None, int]]:
    """What stands at a place by now, and the directory it stands in; None for nothing."""
    with _opened(workspace, place.root, os.path.dirname(place.path)) as dir_fd:
        if dir_fd is None:
            yield None, -1
            return
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(place.name, flags, dir_fd=dir_fd)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            yield None, dir_fd
            return
        try:
            yield fd, dir_fd
        finally:
            close_quietly(fd)


def _sync_at(workspace: Workspace, place: Place, after: Content, store: Store) -> None:
    """The file at a path, whichever it is by now: only what stands at the name can be lost with the power."""
    with _opened_file(workspace, place) as (fd, dir_fd):
        if fd is None:
            return
        try:
            sync_file(fd)
        except OSError:
            # The kernel may have given up its pages, and a second sync would succeed without them.
            _write_again(fd, dir_fd, place.name, after, store)


def _write_again(fd: int, dir_fd: int, name: str, after: Content, store: Store) -> None:
    """The same content and facts in another file. A conflict means that the content is not wanted any more."""
    try:
        with PendingFile(dir_fd, name, like=fidelity.capture(fd), sync=True) as pending:
            store.fill(pending, after)
            pending.replace_if(Expected(after.sha256))
    except Conflict as conflict:
        conflict.close()


def _unlink_at(workspace: Workspace, place: Place, name: str) -> None:
    with _opened(workspace, place.root, os.path.dirname(place.path)) as dir_fd:
        if dir_fd is not None:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=dir_fd)


@contextmanager
def _opened(workspace: Workspace, root: int, path: str) -> Iterator[int | None]:
    try:
        fd = workspace.open_directory(root, path)
    except ToolError as error:
        if error.envelope.context.get("errno") not in map(errno.errorcode.get, _GONE):
            raise
        yield None
        return
    try:
        yield fd
    finally:
        close_quietly(fd)
