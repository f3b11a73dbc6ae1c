"""Removing the file, link or directory that is meant, and no other."""

from __future__ import annotations

import stat
from io import FileIO

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import rename_noreplace
from perdure.platform.sync import sync_directory
from perdure.storage.errors import Conflict, FileError, StorageError, SyncError
from perdure.storage.files import temp_names
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import Expected, ExpectedDirectory, ExpectedEntry, ExpectedLink
from perdure.storage.files.pending_entries import set_directory_mode
from perdure.storage.files.swap import NOT_EMPTY, directory_lock, found_at, take_out
from perdure.text.printable import make_printable


def remove(dir_fd: int, name: str, expected: ExpectedEntry, *, sync: bool = False) -> bool:
    """Remove an entry if it is the expected one, else raise `Conflict` with it back at its name.

    A file or link is put aside first and looked at there, where no program finds it by its name. If the name is taken
    again before it can be put back, its content is in the conflict's `displaced`. False for a directory that is not
    empty: it stays.
    """
    if isinstance(expected, ExpectedDirectory):
        is_gone = _remove_directory(dir_fd, name, sync)
    else:
        with directory_lock(dir_fd):
            _remove(dir_fd, name, expected, sync)
        is_gone = True
    passed("remove.landed")
    return is_gone


def _remove_directory(dir_fd: int, name: str, sync: bool) -> bool:
    """`rmdir` decides and removes in one step. One that is gone already is what was wanted."""
    try:
        found = directories.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        point("remove.before_unlink")
        directories.rmdir(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        raise Conflict("changed_meanwhile", found_at(dir_fd, name)) from None
    except OSError as error:
        if error.errno in NOT_EMPTY:
            return False
        raise FileError(error, path=make_printable(name)) from None
    if sync:
        try:
            _sync(name, dir_fd)
        except StorageError:
            directories.mkdir(name, dir_fd=dir_fd)
            set_directory_mode(dir_fd, name, stat.S_IMODE(found.st_mode))
            raise
    return True


def _remove(dir_fd: int, name: str, expected: Expected | ExpectedLink, sync: bool) -> None:
    temp = temp_names.fresh("x")
    try:
        found = directories.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        certain = isinstance(expected, Expected) and expected.is_unchanged_by_stat(found)
        point("remove.before_rename")
        rename_noreplace(dir_fd, name, dir_fd, temp)
    except FileNotFoundError:
        raise Conflict("file_vanished") from None
    except OSError as error:
        raise FileError(error, path=make_printable(name)) from None
    aside = None
    try:
        point("remove.renamed")
        aside, reason = take_out(dir_fd, temp, expected, was_certain=certain)
        if reason is not None:
            raise Conflict(reason, aside)
        if sync:
            _sync(name, dir_fd)
        point("remove.before_unlink")
        directories.unlink(temp, dir_fd=dir_fd)
    except BaseException as error:
        try:
            rename_noreplace(dir_fd, temp, dir_fd, name)
        except OSError:
            if aside is not None:
                reason = error.reason if isinstance(error, Conflict) else "changed_meanwhile"
                raise Conflict(reason, found_at(dir_fd, name), [aside]) from error
        raise _typed(error, aside, name) from None
    if aside is not None:
        close_quietly(aside)


def _typed(error: BaseException, file: FileIO | None, name: str) -> BaseException:
    if file is not None and not isinstance(error, Conflict):
        close_quietly(file)
    return FileError(error, path=make_printable(name)) if isinstance(error, OSError) else error


def _sync(name: str, dir_fd: int) -> None:
    try:
        point("write.before_dir_fsync")
        sync_directory(dir_fd)
    except OSError as error:
        raise SyncError(error, "directory", path=make_printable(name)) from None
