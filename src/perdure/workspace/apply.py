"""One planned change of a file, a link or a directory, made on disk or taken back."""

from __future__ import annotations

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.sync import sync_directory
from perdure.storage.errors import FileError, SyncError
from perdure.storage.files import removal
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import ExpectedDirectory, ExpectedEntry
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.files.pending import Landed, PendingFile
from perdure.storage.files.pending_entries import (
    ACCESS,
    PendingDirectory,
    PendingLink,
    set_directory_mode,
)
from perdure.storage.timeline import FileKind
from perdure.text.printable import make_printable
from perdure.workspace.contents import Content, ContentStore
from perdure.workspace.entries import expectation
from perdure.workspace.paths.roots import Place

Pending = PendingFile | PendingLink | PendingDirectory


class FileChange:
    """One entry from what it is to what it shall be; None stands for nothing. `kind` is what it shall be, or what it is
    where it shall be gone; `old_kind` is what it is."""

    def __init__(
        self,
        place: Place,
        before: ExpectedEntry | None,
        facts: FileMetadata | None,
        after: Content | None,
        old: Content | None = None,
        old_facts: FileMetadata | None = None,
        *,
        kind: FileKind = "file",
        old_kind: FileKind = "file",
    ) -> None:
        self.place = place
        self.before = before
        self.facts = facts
        self.after = after
        self.old = old
        self.old_facts = old_facts
        self.kind = kind
        self.old_kind = old_kind
        self.made: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.left: str | None = None
        self.is_kept = False
        """A directory that was to be removed, and is not empty."""
        self.waits_for_parent = False
        """Another change of the same call makes its directory."""
        self._pending: Pending | None = None

    @property
    def file_content(self) -> Content | None:
        """What has to be synced at its name."""
        return self.after if self.kind == "file" else None

    @property
    def makes_directory(self) -> bool:
        return self.after is not None and self.kind == "directory"

    def prepare(self, store: ContentStore, *, sync: bool) -> None:
        """Write the new file, without its name."""
        if self.after is None or self._pending is not None:
            return
        self.place.reopen()
        if self.place.missing:
            self.made = self.place.make_parents(sync=sync)
        self._pending = self._filled(self.after, self.kind, self.facts, store, sync=sync)

    def apply(self, store: ContentStore, *, sync: bool) -> None:
        self.prepare(store, sync=sync)
        self.place.reopen()
        if (landed := self._put(self._pending, self.before, sync=sync)) is not None:
            self.warnings, self.left = landed.warnings, landed.left

    def revert(self, store: ContentStore, *, sync: bool) -> None:
        if self.is_kept:
            return
        now = expectation(self.after, self.kind, store)
        self.place.reopen_made_again()
        back = None
        if self.old is not None:
            back = self._filled(self.old, self.old_kind, self.old_facts, store, sync=sync)
        self._put(back, now, sync=sync)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.discard()
        self.place.close()

    def _filled(
        self, content: Content, kind: FileKind, facts: FileMetadata | None, store: ContentStore, *, sync: bool
    ) -> Pending:
        dir_fd, name = self.place.dir_fd, self.place.name
        if kind == "link":
            return PendingLink(dir_fd, name, b"".join(store.pieces(content)), sync=sync)
        if kind == "directory":
            return PendingDirectory(dir_fd, name, facts.mode if facts is not None else None, sync=sync)
        pending = PendingFile(dir_fd, name, like=facts, sync=sync)
        try:
            store.fill(pending, content)
            pending.seal()
        except BaseException:
            pending.discard()
            raise
        return pending

    def _put(self, pending: Pending | None, before: ExpectedEntry | None, *, sync: bool) -> Landed | None:
        if pending is not None:
            return pending.create() if before is None else pending.replace_if(before)
        if before is not None:
            self.is_kept = not removal.remove(self.place.dir_fd, self.place.name, before, sync=sync)
        return None


class ModeChange:
    """The mode of a directory, from what it is to what it shall be. Of a directory that the same call makes, the mode
    that takes its owner's access away, after all that is in it."""

    kind: FileKind = "directory"
    after = file_content = left = None
    made: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_kept = makes_directory = False
    waits_for_parent = True

    def __init__(self, place: Place, old: int, new: int) -> None:
        self.place = place
        self._old = old
        self.mode = new

    @property
    def grants_access(self) -> bool:
        """Whether it must come before the changes in the directory, and not after them."""
        return self.mode & ACCESS == ACCESS

    def prepare(self, store: ContentStore, *, sync: bool) -> None:
        pass

    def apply(self, store: ContentStore, *, sync: bool) -> None:
        self.place.reopen()
        if self.place.missing:
            self.place.make_parents()  # another change has made them
        self._set(self._old, self.mode, sync)

    def revert(self, store: ContentStore, *, sync: bool) -> None:
        self.place.reopen_made_again()
        self._set(self.mode, self._old, sync)

    def close(self) -> None:
        self.place.close()

    def _set(self, before: int, after: int, sync: bool) -> None:
        dir_fd, name = self.place.dir_fd, self.place.name
        try:
            point("mode.before_set")
            set_directory_mode(dir_fd, name, after, expected=before)
        except OSError as error:
            raise FileError(error, path=make_printable(name)) from None
        passed("mode.set")
        if sync:
            try:
                sync_entry(dir_fd, name)
            except PermissionError:
                pass  # a mode that forbids opening it; the settler syncs its parent
            except OSError as error:
                raise SyncError(error, "directory", path=make_printable(name)) from None


EntryChange = FileChange | ModeChange


def entry_changes(
    place: Place,
    before: ExpectedEntry | None,
    facts: FileMetadata | None,
    after: Content | None,
    old: Content | None = None,
    old_facts: FileMetadata | None = None,
    *,
    kind: FileKind = "file",
    old_kind: FileKind = "file",
) -> list[EntryChange]:
    """The steps from what is at a place to what shall be there."""
    mode = facts.mode if facts is not None else None
    is_directory = after is not None and kind == "directory"
    if is_directory and isinstance(before, ExpectedDirectory):
        assert old_facts is not None
        return [ModeChange(place, old_facts.mode, mode)] if mode is not None else []
    changes: list[EntryChange] = [
        FileChange(place, before, facts, after, old, old_facts, kind=kind, old_kind=old_kind)
    ]
    if isinstance(before, ExpectedDirectory) and old_facts is not None and old_facts.mode & ACCESS != ACCESS:
        # What is in it is removed first.
        changes.insert(0, ModeChange(place, old_facts.mode, old_facts.mode | ACCESS))
    if is_directory and mode is not None and mode & ACCESS != ACCESS:
        changes.append(ModeChange(place, mode | ACCESS, mode))
    return changes


def in_order(changes: list[EntryChange]) -> list[EntryChange]:
    """The order in which one call's changes are made. What is new comes first: until it is there, nothing old is gone.
    A directory is made before what is in it, and removed or replaced after that."""
    return sorted(changes, key=_order)


def _order(change: EntryChange) -> tuple[int, int]:
    depth = change.place.path.count("/")
    if isinstance(change, ModeChange):
        return (0, depth) if change.grants_access else (3, -depth)
    empties = change.before is not None and change.old_kind == "directory"
    return (2, -depth) if change.after is None or empties else (1, depth)


def sync_entry(dir_fd: int, name: str) -> None:
    """Make the mode of a directory durable."""
    fd = directories.open(
        name, directories.PLACE | directories.DIRECTORY | directories.NOFOLLOW, dir_fd=dir_fd
    )
    try:
        sync_directory(fd)
    finally:
        close_quietly(fd)


def ancestors(path: str) -> list[str]:
    """The directories from a root to a file, the root itself as an empty path."""
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]
