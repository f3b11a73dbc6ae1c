"""Removing the file that is meant, and no other."""

from __future__ import annotations

from io import FileIO

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import rename_noreplace
from perdure.platform.sync import sync_directory
from perdure.storage.errors import Conflict, FileError, SyncError
from perdure.storage.files import temp_names
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.swap import directory_lock, found_at, mismatch_reason, open_if_regular
from perdure.text.printable import make_printable


def remove(dir_fd: int, name: str, expected: Expected, *, sync: bool = False) -> None:
    """Remove a file if it is the expected one, else raise `Conflict` with it back at its name.

    It is put aside first and looked at there, where no program finds it by its name. If the name is taken again
    before it can be put back, its content is in the conflict's `displaced`.
    """
    with directory_lock(dir_fd):
        _remove(dir_fd, name, expected, sync)
    passed("remove.landed")


def _remove(dir_fd: int, name: str, expected: Expected, sync: bool) -> None:
    temp = temp_names.fresh("x")
    try:
        certain = expected.is_unchanged_by_stat(directories.stat(name, dir_fd=dir_fd, follow_symlinks=False))
        point("remove.before_rename")
        rename_noreplace(dir_fd, name, dir_fd, temp)
    except FileNotFoundError:
        raise Conflict("file_vanished") from None
    except OSError as error:
        raise FileError(error, path=make_printable(name)) from None
    aside = None
    try:
        point("remove.renamed")
        aside = open_if_regular(dir_fd, temp)
        reason = mismatch_reason(aside, expected, was_certain=certain)
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
