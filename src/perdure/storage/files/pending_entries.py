"""Symbolic links and directories that take their place in one step, with the steps of `PendingFile`.

A new one is made at its name: `symlink` and `mkdir` refuse a name that is taken. One that replaces something is made
under a temporary name and changes places with what is there; what came out is compared with what was expected, and
goes back to its name if it is something else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import FileIO

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import exchange, is_missing, reopen_path
from perdure.platform.permissions import set_mode
from perdure.platform.sync import sync_directory
from perdure.storage.errors import Conflict, FileError, StorageError, SyncError
from perdure.storage.files import temp_names
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import ExpectedEntry
from perdure.storage.files.pending import Landed
from perdure.storage.files.swap import PutBack, directory_lock, drop, put_back, take_out
from perdure.text.printable import make_printable

ACCESS = stat.S_IRWXU
"""What a directory grants its owner while its entries are put in place."""


class _PendingEntry:
    """`dir_fd` stays the caller's. Not for several threads at once."""

    def __init__(self, dir_fd: int, name: str, *, sync: bool = False) -> None:
        self.dir_fd = dir_fd
        self.name = name
        self._sync = sync

    def _make(self, name: str) -> None:
        raise NotImplementedError

    def _unmake(self, name: str) -> None:
        raise NotImplementedError

    def _digest(self) -> str:
        raise NotImplementedError

    def create(self) -> Landed:
        """Give it its name; refused if the name is taken."""
        point("write.before_create")
        try:
            self._make(self.name)
        except OSError as error:
            raise FileError(error, path=make_printable(self.name)) from None
        try:
            point("write.created")
            self._sync_names()
        except (OSError, StorageError) as error:
            self._discard(self.name)
            raise self._typed(error) from None
        passed("write.landed")
        return Landed(self._digest(), 0)

    def replace_if(self, expected: ExpectedEntry) -> Landed:
        """Take the place of the expected entry, or raise `Conflict` with everything else as it was."""
        with directory_lock(self.dir_fd):
            self._exchange(expected)
        passed("write.landed")
        return Landed(self._digest(), 0)

    def discard(self) -> None:
        """Nothing is made before it lands."""

    def _exchange(self, expected: ExpectedEntry) -> None:
        temp = temp_names.fresh("x")
        ours = -1
        try:
            point("write.before_name")
            self._make(temp)
            point("write.named")
            ours = directories.open(temp, directories.ENTRY, dir_fd=self.dir_fd)
            point("write.before_exchange")
            exchange(self.dir_fd, temp, self.name)
        except OSError as error:
            if ours >= 0:
                close_quietly(ours)
            if is_missing(error) and ours >= 0:
                self._replace_checked(temp, expected)
                return
            self._discard(temp)
            if isinstance(error, FileNotFoundError):
                raise Conflict("file_vanished") from None
            raise self._typed(error) from None
        try:
            self._verify(temp, expected, ours)
        finally:
            close_quietly(ours)

    def _verify(self, temp: str, expected: ExpectedEntry, ours: int) -> None:
        """They have changed places. Only what was expected may be removed; all else goes back."""
        aside: FileIO | None = None
        try:
            point("write.exchanged")
            aside, reason = take_out(self.dir_fd, temp, expected)
            if reason is None:
                point("write.verified")
                self._sync_names()
                point("write.before_unlink")
                drop(self.dir_fd, temp, expected)
        except BaseException as error:
            back = self._put_back(temp, aside, ours)
            if isinstance(error, Conflict) or back.displaced or back.is_stuck:
                raise back.conflict(
                    error.reason if isinstance(error, Conflict) else "changed_meanwhile"
                ) from None
            back.close()
            raise self._typed(error) from None
        if reason is not None:
            raise self._put_back(temp, aside, ours).conflict(reason)
        if aside is not None:
            close_quietly(aside)

    def _put_back(self, temp: str, aside: FileIO | None, ours: int) -> PutBack:
        back = put_back(self.dir_fd, temp, self.name, aside, ours)
        if back.temp_is_ours:
            self._discard(temp)
        return back

    def _replace_checked(self, temp: str, expected: ExpectedEntry) -> None:
        """Without an exchange: look, remove, rename. Between these steps another program can be overwritten."""
        found, reason = take_out(self.dir_fd, self.name, expected)
        if reason is not None:
            self._discard(temp)
            raise Conflict(reason, found)
        if found is not None:
            close_quietly(found)
        try:
            drop(self.dir_fd, self.name, expected)
            directories.rename(temp, self.name, src_dir_fd=self.dir_fd, dst_dir_fd=self.dir_fd)
            self._sync_names()
        except OSError as error:
            self._discard(temp)
            raise self._typed(error) from None

    def _discard(self, name: str) -> None:
        try:
            self._unmake(name)
        except OSError:
            pass  # what cannot be removed now is removed by recovery

    def _sync_names(self) -> None:
        if not self._sync:
            return
        try:
            point("write.before_dir_fsync")
            sync_directory(self.dir_fd)
        except OSError as error:
            raise SyncError(error, "directory", path=make_printable(self.name)) from None

    def _typed(self, error: BaseException) -> BaseException:
        return FileError(error, path=make_printable(self.name)) if isinstance(error, OSError) else error


class PendingLink(_PendingEntry):
    def __init__(self, dir_fd: int, name: str, target: bytes, *, sync: bool = False) -> None:
        super().__init__(dir_fd, name, sync=sync)
        self._target = target

    def _make(self, name: str) -> None:
        directories.symlink(os.fsdecode(self._target), name, dir_fd=self.dir_fd)

    def _unmake(self, name: str) -> None:
        directories.unlink(name, dir_fd=self.dir_fd)

    def _digest(self) -> str:
        return hashlib.sha256(self._target).hexdigest()


class PendingDirectory(_PendingEntry):
    """Its owner has access until `set_directory_mode` sets a mode that takes it away. A directory that another program
    made meanwhile will do as well."""

    def __init__(self, dir_fd: int, name: str, mode: int | None, *, sync: bool = False) -> None:
        super().__init__(dir_fd, name, sync=sync)
        self._mode = mode

    def _make(self, name: str) -> None:
        try:
            directories.mkdir(name, dir_fd=self.dir_fd)
        except FileExistsError:
            if not stat.S_ISDIR(directories.stat(name, dir_fd=self.dir_fd, follow_symlinks=False).st_mode):
                raise
        if self._mode is not None:
            set_directory_mode(self.dir_fd, name, self._mode | ACCESS)

    def _unmake(self, name: str) -> None:
        directories.rmdir(name, dir_fd=self.dir_fd)

    def _digest(self) -> str:
        return hashlib.sha256(b"").hexdigest()


def set_directory_mode(dir_fd: int, name: str, mode: int, *, expected: int | None = None) -> None:
    """Raises `Conflict` for what is no directory, or one that has another mode than the expected."""
    try:
        fd = directories.open(
            name, directories.PLACE | directories.NOFOLLOW | directories.DIRECTORY, dir_fd=dir_fd
        )
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        raise Conflict("changed_meanwhile") from None
    try:
        found = stat.S_IMODE(os.fstat(fd).st_mode)
        if expected is not None and found != expected:
            raise Conflict("changed_meanwhile")
        if found != mode:
            _set_mode(fd, mode)
    finally:
        close_quietly(fd)


def _set_mode(fd: int, mode: int) -> None:
    try:
        set_mode(fd, mode)
    except OSError as error:
        if error.errno != errno.EBADF:  # a descriptor that only holds the place
            raise
        os.chmod(reopen_path(fd), mode)
