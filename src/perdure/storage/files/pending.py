"""A file that is written beside its target and takes its place in one step, or leaves no trace.

In the manner of google/renameio: content goes to a temporary file; `create`, `replace_if` or `replace` lands it;
anything else discards it. Where the file system can, the temporary file has no name until the last moment, so a
killed process leaves nothing behind.

What is atomic: another process sees the old file or the new one, and of several creators one wins. A replacement
changes places with the old file first and looks at what came out; if that is not the expected file, they change
places again, and whatever another program wrote meanwhile is either at its name or handed to the caller.

What is durable: with `sync`, content before its name and the name before the return. Without it, nothing: after
a power cut the journal's recovery writes the content again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from io import FileIO
from types import TracebackType
from typing import Self

import msgspec

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import (
    exchange,
    is_missing,
    link_unnamed,
    open_unnamed,
    rename_noreplace,
    reopen_path,
)
from perdure.platform.sync import sync_directory, sync_file
from perdure.storage.errors import Conflict, FileError, StorageError, SyncError
from perdure.storage.files import metadata, temp_names
from perdure.storage.files.copy import copy_file
from perdure.storage.files.file_io import close_quietly, write_all
from perdure.storage.files.fingerprint import Expected, ExpectedDirectory, ExpectedEntry
from perdure.storage.files.metadata import FileMetadata
from perdure.storage.files.swap import (
    PutBack,
    directory_lock,
    drop,
    swap_back,
    take_out,
)
from perdure.text.printable import make_printable


class Landed(msgspec.Struct, frozen=True):
    """The file that is at the name now."""

    sha256: str
    size: int
    warnings: tuple[str, ...] = ()
    left: str | None = None
    """A temporary name that holds the old file and could not be unlinked."""


class PendingFile:
    """New content for a name in an open directory. Use it in `with`: what did not land is discarded.

    `like` are the facts of the file it replaces; without them it gets the mode a new file gets. `dir_fd` stays the
    caller's. Not for several threads at once.
    """

    def __init__(
        self,
        dir_fd: int,
        name: str,
        *,
        like: FileMetadata | None = None,
        sync: bool = False,
    ) -> None:
        self.dir_fd = dir_fd
        self.name = name
        self.size = 0
        self._like = like
        self._sync = sync
        self._digest = hashlib.sha256()
        self._vouched: str | None = None
        self._warnings: tuple[str, ...] = ()
        self._sealed = False
        self._done = False
        self._temp: str | None = None
        self._left: str | None = None
        self._fd = -1
        self._guarded(self._open)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    @property
    def sha256(self) -> str:
        return self._vouched or self._digest.hexdigest()

    def write(self, data: bytes | memoryview) -> None:
        """Append to the content. After an error nothing is left of it, and no further call is allowed."""
        self._check_open()
        self._guarded(lambda: write_all(self._fd, data, "write.chunk"))
        self._digest.update(data)
        self.size += memoryview(data).nbytes

    def copy(self, fd: int, sha256: str) -> None:
        """All of another file, whose hash the caller vouches for: it is not read again to be sure."""
        self._check_open()
        self._guarded(lambda: copy_file(fd, self._fd, "write.chunk"))
        self.size = os.fstat(self._fd).st_size
        self._vouched = sha256

    def seal(self) -> None:
        """Content, facts and, with `sync`, durability are complete; only the name is missing."""
        if self._sealed:
            return
        self._check_open()
        self._guarded(self._complete)
        self._sealed = True

    def create(self) -> Landed:
        """Give it its name; refused if the name is taken. Of several creators exactly one succeeds."""
        self.seal()
        self._guarded(self._appear)
        try:
            point("write.created")
            self._sync_names()
        except (OSError, StorageError) as error:
            if self._is_at_name():
                directories.unlink(self.name, dir_fd=self.dir_fd)
            failed = self._failed(error) if isinstance(error, OSError) else error
            self.discard()
            raise failed from None
        passed("write.landed")
        return self._landed()

    def replace_if(self, expected: ExpectedEntry) -> Landed:
        """Take the place of the expected file, link or directory, or raise `Conflict` with every other content kept.

        A file that a program has open for writing is a conflict as well: it would go on writing to a file
        that no longer has a name.
        """
        self.seal()
        with directory_lock(self.dir_fd):
            return self._exchange(expected)

    def replace(self) -> Landed:
        """Replace whatever is there, without a comparison. For files that no other program writes."""
        self.seal()
        self._guarded(self._take_name)
        self._guarded(self._rename_over)
        return self._landed()

    def discard(self) -> None:
        """Leave no trace. Harmless after landing."""
        if self._temp is not None:
            try:
                directories.unlink(self._temp, dir_fd=self.dir_fd)
            except OSError:
                pass  # what cannot be removed now is swept by recovery
            self._temp = None
        if self._fd >= 0:
            close_quietly(self._fd)
            self._fd = -1
        self._done = True

    # --- the steps ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        point("write.open_temp")
        # A new file gets what the umask and its directory give; `_complete` sets the facts of a replaced one.
        mode = 0o666 if self._like is None else 0o600
        fd = open_unnamed(self.dir_fd, mode)
        if fd is None:
            name = temp_names.fresh("w")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | directories.NOFOLLOW
            fd = directories.open(name, flags, mode, dir_fd=self.dir_fd)
            self._temp = name
        self._fd = fd
        point("write.temp_created")

    def _complete(self) -> None:
        point("write.before_facts")
        reading = self._opened_for_reading()  # before the facts, which may forbid it
        try:
            if self._like is not None:
                self._warnings = metadata.apply(self._fd, self._like)
            if self._sync:
                self._sync_content()
        except BaseException:
            close_quietly(reading)
            raise
        os.close(self._fd)
        self._fd = reading
        point("write.sealed")

    def _sync_content(self) -> None:
        """Before the name: a name must never appear before its content."""
        try:
            point("write.before_fsync")
            sync_file(self._fd)
        except OSError as error:
            raise SyncError(error, "file", path=make_printable(self.name)) from None

    def _opened_for_reading(self) -> int:
        """No file of ours has a writer once it has a name: it can be executed, and replaced, at once."""
        path = reopen_path(self._fd) if self._temp is None else self._temp
        try:
            return directories.open(path, os.O_RDONLY, dir_fd=self.dir_fd)
        except PermissionError:
            return os.dup(self._fd)  # a umask that forbids reading one's own files

    def _take_name(self) -> None:
        """From here on the temporary name may hold the file of another program, and says so."""
        point("write.before_name")
        name = temp_names.fresh("x")
        if self._temp is None:
            link_unnamed(self._fd, self.dir_fd, name)
        else:
            directories.rename(self._temp, name, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)
        self._temp = name
        point("write.named")

    def _appear(self) -> None:
        point("write.before_create")
        if self._temp is None:
            link_unnamed(self._fd, self.dir_fd, self.name)
        else:
            rename_noreplace(self.dir_fd, self._temp, self.dir_fd, self.name)
            self._temp = None

    def _exchange(self, expected: ExpectedEntry) -> Landed:
        self._guarded(self._take_name)
        try:
            found = directories.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)
            certain = isinstance(expected, Expected) and expected.is_unchanged_by_stat(found)
            point("write.before_exchange")
            exchange(self.dir_fd, self._temp_name(), self.name)
        except FileNotFoundError:
            self.discard()
            raise Conflict("file_vanished") from None
        except OSError as error:
            if is_missing(error):
                return self._replace_checked(expected)
            raise self._failed(error) from None
        self._verify(expected, certain)
        return self._landed()

    def _verify(self, expected: ExpectedEntry, certain: bool) -> None:
        """The files have changed places. Only what was expected may be unlinked; all else goes back."""
        temp = self._temp_name()
        aside = None
        try:
            point("write.exchanged")
            aside, reason = take_out(self.dir_fd, temp, expected, was_certain=certain)
            if reason is None:
                point("write.verified")
                self._sync_names()
                point("write.before_unlink")
        except BaseException as error:
            back = self._put_back(aside)
            if back.displaced or back.is_stuck:
                raise back.conflict("changed_meanwhile") from error
            back.close()
            if isinstance(error, OSError):
                raise self._failed(error) from None
            raise
        if reason is not None:
            raise self._put_back(aside).conflict(reason)
        if aside is not None:
            close_quietly(aside)
        try:
            drop(self.dir_fd, temp, expected)
        except Conflict as conflict:
            raise self._put_back(None).conflict(conflict.reason) from None
        except OSError:
            self._left = temp  # the new file is in place; the sync tries to unlink it again
        self._temp = None
        passed("write.landed")

    def _put_back(self, aside: FileIO | None) -> PutBack:
        back = swap_back(self.dir_fd, self._temp_name(), self.name, aside, self._fd, self.sha256)
        if not back.temp_is_ours:
            self._temp = None
        self.discard()
        return back

    def _replace_checked(self, expected: ExpectedEntry) -> Landed:
        """Without an exchange: look, then rename. Between the two an unlocked writer can be overwritten."""
        found, reason = take_out(self.dir_fd, self.name, expected)
        if reason is not None:
            self.discard()
            raise Conflict(reason, found)
        if found is not None:
            found.close()
        if isinstance(expected, ExpectedDirectory):
            drop(self.dir_fd, self.name, expected)
        self._guarded(self._rename_over)
        self._warnings += ("no_exchange",)
        return self._landed()

    def _rename_over(self) -> None:
        point("write.before_replace")
        directories.rename(self._temp_name(), self.name, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)
        self._temp = None
        passed("write.replaced")
        self._sync_names()

    def _sync_names(self) -> None:
        if not self._sync:
            return
        try:
            point("write.before_dir_fsync")
            sync_directory(self.dir_fd)
        except OSError as error:
            raise SyncError(error, "directory", path=make_printable(self.name)) from None

    def _is_at_name(self) -> bool:
        try:
            there = directories.stat(self.name, dir_fd=self.dir_fd, follow_symlinks=False)
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def _landed(self) -> Landed:
        landed = Landed(self.sha256, self.size, self._warnings, self._left)
        self.discard()
        return landed

    def _temp_name(self) -> str:
        assert self._temp is not None
        return self._temp

    def _check_open(self) -> None:
        if self._done or self._sealed:
            raise ValueError("this file is complete")

    def _guarded(self, step: Callable[[], None]) -> None:
        """One step; an error leaves nothing behind and is typed."""
        try:
            step()
        except OSError as error:
            raise self._failed(error) from None
        except BaseException:
            self.discard()
            raise

    def _failed(self, error: OSError) -> FileError:
        self.discard()
        return FileError(error, path=make_printable(self.name))
