"""What landed made durable by itself, many files in one pass: each directory and each file is opened and synced once.

A path that changed several times is synced by its last change alone: a power cut can only lose the content at
the name, and only that change knows what to write again if the sync fails. Where that fails, too, none
of the path's changes is durable: recovery needs all of them to know what a power cut can leave.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

from perdure.platform import directories
from perdure.platform.sync import start_writing, sync_directory, sync_file
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import Conflict, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.pending import PendingFile
from perdure.workspace.apply import EntryChange
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.paths.roots import Place, Roots

log = logging.getLogger(__name__)

OPEN_MAX: Final = 48
"""Of files and of directories, at once."""
AT_ONCE: Final = 16
SYNC_THREADS: Final = 8
"""For a call with more files than that. An fsync waits for a flush of the device's cache, and concurrent ones share it."""
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""How a name answers that is not the file any more: removed, or replaced by something else."""

Name = tuple[int, str]
"""A root and a path beneath it."""


def _name(change: EntryChange) -> Name:
    return change.place.root, change.place.path


def _sync_error(fd: int) -> OSError | None:
    try:
        sync_file(fd)
    except OSError as error:
        return error
    return None


def folder_name(path: str) -> str:
    """Under which name a failed sync of the directory of a path is known: no file has it."""
    return f"{os.path.dirname(path)}/"


class NotDurable(Exception):
    """A sync of this path failed since the change landed. A second sync can succeed without the data, so it proves
    nothing."""


class FailedSyncs:
    """The paths at which a sync failed, each with the newest row that had landed by then. A later change puts another
    file there, and its sync counts again."""

    def __init__(self) -> None:
        self._rows: dict[Name, int] = {}
        self.newest_row = 0

    def add(self, name: Name) -> None:
        self._rows[name] = self.newest_row

    def check(self, name: Name, row: int) -> None:
        if row <= self._rows.get(name, -1):
            raise NotDurable(name[1])

    def forget(self, name: Name, row: int) -> None:
        if row > self._rows.get(name, row):
            del self._rows[name]


class SyncPass:
    """What one pass has open and has done. It goes from the newest change to the oldest."""

    def __init__(self, failed: FailedSyncs | None = None) -> None:
        self.failed = failed if failed is not None else FailedSyncs()
        self._last: dict[Name, EntryChange] = {}
        self._files: dict[Name, int] = {}
        self._directories: dict[Name, int] = {}
        self._synced: set[Name] = set()
        self._executor: ThreadPoolExecutor | None = None

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        for fd in (*self._files.values(), *self._directories.values()):
            close_quietly(fd)
        self._files.clear()
        self._directories.clear()

    def begin(self, roots: Roots, change: EntryChange) -> None:
        """Let the device begin with a file, so that many are waited for at once."""
        name = _name(change)
        if self._last.setdefault(name, change) is not change or change.file_content is None:
            return
        fd = self._opened(roots, change.place)
        if fd is None:
            return
        try:
            start_writing(fd)
        except BaseException:
            close_quietly(fd)
            raise
        if len(self._files) < OPEN_MAX:
            self._files[name] = fd
        else:
            close_quietly(fd)

    def sync_files(self, roots: Roots, changes: Iterable[EntryChange], store: ContentStore) -> None:
        """The files at the paths of these changes, whichever they are by now."""
        wanted = [
            change
            for change in changes
            if change.file_content is not None and self._last.get(_name(change), change) is change
        ]
        for start in range(0, len(wanted), AT_ONCE):
            self._sync_some(roots, wanted[start : start + AT_ONCE], store)

    def _sync_some(self, roots: Roots, changes: Sequence[EntryChange], store: ContentStore) -> None:
        opened: list[tuple[EntryChange, int]] = []
        try:
            for change in changes:
                fd = self._files.pop(_name(change), None)
                if fd is None:
                    fd = self._opened(roots, change.place)
                if fd is not None:
                    opened.append((change, fd))
            errors = self._sync_all([fd for _, fd in opened])
            for (change, fd), error in zip(opened, errors, strict=True):
                if error is not None:
                    self._write_again(roots, change, fd, store, error)
        finally:
            for _, fd in opened:
                close_quietly(fd)

    def _sync_all(self, fds: list[int]) -> list[OSError | None]:
        if len(fds) > SYNC_THREADS:
            try:
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(SYNC_THREADS, "sync")
                return list(self._executor.map(_sync_error, fds))
            except RuntimeError as error:  # no thread can be started
                log.warning("files are synced one after the other: %s", error)
        return [_sync_error(fd) for fd in fds]

    def _write_again(
        self, roots: Roots, change: EntryChange, fd: int, store: ContentStore, error: OSError
    ) -> None:
        """The kernel may have given up its pages, and a second sync would succeed without them."""
        place = change.place
        log.error("sync of %s failed: %s; it is written again", place.path, error)
        assert change.file_content is not None
        dir_fd = self._directory(roots, place.root, os.path.dirname(place.path))
        if dir_fd is not None and not _is_written_again(fd, dir_fd, place.name, change.file_content, store):
            raise error

    def sync_names(self, roots: Roots, changes: Iterable[EntryChange]) -> None:
        """Every directory in which a name changed, or whose mode did, once."""
        for change in changes:
            root = change.place.root
            for path in {os.path.dirname(path) for path in (change.place.path, *change.made)}:
                self._sync_once(roots, (root, path))
            if change.kind == "directory":
                with suppress(PermissionError):  # one that may not be opened for reading
                    self._sync_once(roots, (root, change.place.path))

    def _sync_once(self, roots: Roots, name: Name) -> None:
        if name not in self._synced:
            if (dir_fd := self._directory(roots, *name)) is not None:
                self._sync_directory(dir_fd, name)
            self._synced.add(name)

    def _sync_directory(self, dir_fd: int, name: Name) -> None:
        try:
            sync_directory(dir_fd)
        except OSError:
            self.failed.add((name[0], folder_name(f"{name[1]}/")))
            raise

    def unlink(self, roots: Roots, place: Place, name: str) -> None:
        folder = os.path.dirname(place.path)
        if (dir_fd := self._directory(roots, place.root, folder)) is not None:
            with suppress(FileNotFoundError):
                directories.unlink(name, dir_fd=dir_fd)
            self._synced.discard((place.root, folder))

    def _opened(self, roots: Roots, place: Place) -> int | None:
        """A descriptor of the entry that is at the place now; None if there is none."""
        dir_fd = self._directory(roots, place.root, os.path.dirname(place.path))
        if dir_fd is None:
            return None
        flags = os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK
        try:
            return directories.open(place.name, flags, dir_fd=dir_fd)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return None

    def _directory(self, roots: Roots, root: int, path: str) -> int | None:
        """The pass's own descriptor of a directory; None where it is gone."""
        if (known := self._directories.get((root, path))) is not None:
            return known
        fd = _entered(roots, root, path)
        if fd is not None:
            if len(self._directories) == OPEN_MAX:
                close_quietly(self._directories.pop(next(iter(self._directories))))
            self._directories[root, path] = fd
        return fd


class AppliedChanges:
    """The files of one call, applied but not yet synced: the journal can restore them until they are."""

    def __init__(
        self, changes: list[EntryChange], seqs: list[int], roots: Roots, store: ContentStore, strict: bool
    ) -> None:
        self.seqs = seqs
        self._changes = changes
        self._roots = roots
        self._store = store
        self._strict = strict

    def begin_sync(self, syncing: SyncPass) -> None:
        """Start the writes that `sync` will wait for."""
        if not self._strict:
            for change in self._changes:
                syncing.begin(self._roots, change)

    def sync(self, syncing: SyncPass) -> None:
        """Sync the files, unless they were synced as they were applied, and every directory in which a name changed."""
        names = [_name(change) for change in self._changes]
        folders = [(root, folder_name(path)) for root, path in names]
        newest = max(self.seqs)
        for name in (*names, *folders):
            syncing.failed.check(name, newest)
        try:
            for change in self._changes:
                if change.left is not None:
                    syncing.unlink(self._roots, change.place, change.left)
            if not self._strict:
                syncing.sync_files(self._roots, self._changes, self._store)
            syncing.sync_names(self._roots, self._changes)
        except (OSError, ToolError, StorageError) as error:
            for name in names:
                syncing.failed.add(name)
            log.error(
                "row %d is not durable: %s: %s", newest, ", ".join(path for _, path in names[:5]), error
            )
            raise
        for name in (*names, *folders):
            syncing.failed.forget(name, newest)


def sync_directories(roots: Roots, root: int, paths: Iterable[str]) -> None:
    """Make names durable. A directory that is gone has none left to lose."""
    for path in paths:
        with _held(roots, root, path) as dir_fd:
            if dir_fd is not None:
                sync_directory(dir_fd)


def _entered(roots: Roots, root: int, path: str) -> int | None:
    try:
        return roots.open_directory(root, path)
    except ToolError as error:
        if error.envelope.context.get("errno") not in map(errno.errorcode.get, _GONE):
            raise
        return None


@contextmanager
def _held(roots: Roots, root: int, path: str) -> Iterator[int | None]:
    fd = _entered(roots, root, path)
    try:
        yield fd
    finally:
        if fd is not None:
            close_quietly(fd)


def _is_written_again(fd: int, dir_fd: int, name: str, after: Content, store: ContentStore) -> bool:
    """Write the same content and metadata to a new file and sync it. False if the name holds other content by now: that of a
    later change, whose pages may be lost, or of another program."""
    try:
        with PendingFile(dir_fd, name, like=metadata.capture(fd), sync=True) as pending:
            store.fill(pending, after)
            pending.replace_if(Expected(after.sha256))
    except Conflict as conflict:
        conflict.close()
        return False
    return True
