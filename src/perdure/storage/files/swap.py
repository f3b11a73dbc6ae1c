"""Undoes an exchange of two files when the displaced file is not the expected one.

Any number of programs may rename and write meanwhile. The rule: the newest foreign content ends at the name, and
a foreign content that no name holds any more is handed on as an open file, never dropped.

One race remains: a program that reads the name between the exchange and the swap back sees ours, without the newest
foreign content.

This holds against programs that write or rename. Two processes that exchange at once would take each other's unverified
content for a foreign one, so exchanges in one directory are serialized by a lock on it (`directory_lock`).
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from typing import Final

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import exchange, is_open_for_writing, rename_noreplace
from perdure.platform.locks import try_lock
from perdure.storage.digest import sha256_of
from perdure.storage.errors import Conflict, ConflictReason, FileError, LockTimeout
from perdure.storage.files.file_io import close_quietly
from perdure.storage.files.fingerprint import Expected, ExpectedDirectory, ExpectedEntry, ExpectedLink
from perdure.storage.process_lock import is_locked_here

_NOT_A_FILE: Final = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.ENODEV,
    errno.EACCES,
    errno.EPERM,
)
NOT_EMPTY: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""How `rmdir` refuses a directory with something in it."""
SWAPS_MAX: Final = 100
TURN_S: Final = 20.0
IDLE_S: Final = 2.0


@contextmanager
def directory_lock(dir_fd: int) -> Iterator[None]:
    """Our turn to exchange in this directory. Refused if another Perdure holds it for too long."""
    if is_locked_here(dir_fd):  # the root of a workspace that is being written
        yield
        return
    fd = -1
    try:
        fd = directories.open(".", os.O_RDONLY | directories.DIRECTORY, dir_fd=dir_fd)
    except PermissionError:
        pass  # a directory that may be written but not read cannot be locked
    except OSError as error:
        raise FileError(error) from None
    try:
        if fd >= 0:
            _lock(fd)
        yield
    finally:
        if fd >= 0:
            close_quietly(fd)


def _lock(fd: int) -> None:
    until = time.monotonic() + TURN_S
    while True:
        try:
            try_lock(fd)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise LockTimeout("directory") from None
            time.sleep(0.0005)
        except OSError:
            return  # a file system without locks


def open_if_regular(dir_fd: int, name: str) -> FileIO | None:
    """Open a file of any program for reading; None for what is no regular file."""
    flags = os.O_RDONLY | directories.NOFOLLOW | directories.NONBLOCK
    try:
        if not stat.S_ISREG(directories.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            return None
        return FileIO(directories.open(name, flags, dir_fd=dir_fd), "rb")
    except OSError as error:
        if error.errno not in _NOT_A_FILE:
            raise  # of a device that fails nothing can be said
        return None


def found_at(dir_fd: int, name: str) -> FileIO | None:
    """The same where there is an error to be told already."""
    try:
        return open_if_regular(dir_fd, name)
    except OSError:
        return None


def mismatch_reason(
    file: FileIO | None, expected: Expected, *, was_certain: bool = False
) -> ConflictReason | None:
    """Why a file is not the expected one; None if it is.

    Checks for open writers first, then the content: a program that opened the file before it was displaced could
    otherwise still change it after the comparison.
    """
    if file is None:
        return "not_a_file"
    fd = file.fileno()
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        return "not_a_file"
    if info.st_nlink > 1:
        return "hard_linked"
    if is_open_for_writing(fd):
        return "open_elsewhere"
    return None if expected.matches(fd, was_certain=was_certain) else "changed_meanwhile"


def take_out(
    dir_fd: int, temp: str, expected: ExpectedEntry, *, was_certain: bool = False
) -> tuple[FileIO | None, ConflictReason | None]:
    """Look at what was put aside under a temporary name: the open file, if it is one, and why it is not the expected
    entry. None if it is: then `drop` may remove it."""
    match expected:
        case Expected():
            aside = open_if_regular(dir_fd, temp)
            return aside, mismatch_reason(aside, expected, was_certain=was_certain)
        case ExpectedLink(target):
            if read_link(dir_fd, temp) == target:
                return None, None
            return open_if_regular(dir_fd, temp), "changed_meanwhile"
        case ExpectedDirectory():
            try:
                return None, "not_empty" if list_directory(dir_fd, temp) else None
            except PermissionError:
                return None, None  # `drop` finds out
            except NotADirectoryError:
                return open_if_regular(dir_fd, temp), "changed_meanwhile"


def drop(dir_fd: int, temp: str, expected: ExpectedEntry) -> None:
    """Remove what `take_out` found to be the expected entry. A directory into which something was put since stays, and
    is a `Conflict`."""
    if not isinstance(expected, ExpectedDirectory):
        directories.unlink(temp, dir_fd=dir_fd)
        return
    try:
        directories.rmdir(temp, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in NOT_EMPTY:
            raise
        raise Conflict("not_empty") from None


def list_directory(dir_fd: int, name: str) -> list[str]:
    flags = os.O_RDONLY | directories.DIRECTORY | directories.NOFOLLOW
    fd = directories.open(name, flags, dir_fd=dir_fd)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def read_link(dir_fd: int, name: str) -> bytes | None:
    """The target of a symbolic link; None for what is none."""
    try:
        return os.fsencode(directories.readlink(name, dir_fd=dir_fd))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
        return None


class PutBack:
    """The outcome: `found` is the file at the name, `displaced` are files that lost their name, `temp_is_ours` allows to
    unlink the temporary name. `is_stuck`: the exchange back failed, and our file is still at the name."""

    def __init__(
        self,
        found: FileIO | None,
        displaced: Sequence[FileIO],
        *,
        temp_is_ours: bool,
        is_stuck: bool = False,
    ) -> None:
        self.found = found
        self.displaced = tuple(displaced)
        self.temp_is_ours = temp_is_ours
        self.is_stuck = is_stuck

    def conflict(self, reason: ConflictReason) -> Conflict:
        return Conflict("not_put_back" if self.is_stuck else reason, self.found, self.displaced)

    def close(self) -> None:
        for file in (self.found, *self.displaced):
            if file is not None:
                close_quietly(file)


def swap_back(dir_fd: int, temp: str, name: str, aside: FileIO | None, ours: int, sha256: str) -> PutBack:
    """`ours` is at `name` and a foreign file at `temp`: exchange them again."""
    ended = put_back(dir_fd, temp, name, aside, ours)
    if not ended.is_stuck and (not _is_idle(ours) or _is_changed(ours, sha256)):
        ended.displaced += (FileIO(os.dup(ours), "rb"),)  # written into ours while it stood at the name
    return ended


def put_back(dir_fd: int, temp: str, name: str, aside: FileIO | None, ours: int) -> PutBack:
    """As `swap_back`, for an entry of ours that no program can have written to. `ours` may be a descriptor that only
    examines it."""
    left: tuple[int, int] | None = None  # what was left at the name, from the second time on
    left_file = None
    held = aside  # what is at the temporary name
    lost: list[FileIO] = []
    for _ in range(SWAPS_MAX):
        is_swapped = False
        try:
            mine = _key(os.fstat(ours))
            point("write.before_swap_back")
            if not _swap(dir_fd, temp, name):
                return PutBack(held, lost, temp_is_ours=False)
            is_swapped = True
            passed("write.swapped_back")
            came = _key(directories.stat(temp, dir_fd=dir_fd, follow_symlinks=False))
        except OSError:
            if is_swapped:  # what came out stays under the temporary name, whosever it is
                return PutBack(held, lost, temp_is_ours=False)
            break
        if came == (left or mine):
            if left_file is not None:
                lost.append(left_file)
            return PutBack(held, lost, temp_is_ours=came == mine or left_file is not None)
        # Another program put newer content at the name. It goes back there, and the file that we put there is kept.
        if left_file is not None:
            lost.append(left_file)
        left_file, held = held, found_at(dir_fd, temp)
        left = _key(os.fstat(left_file.fileno())) if left_file is not None else (0, 0)
    # Neither can be done: the name keeps ours, and theirs is kept twice, by the open file and by its name.
    if held is not None:
        lost.append(held)
    return PutBack(None, lost, temp_is_ours=False, is_stuck=True)


def _swap(dir_fd: int, temp: str, name: str) -> bool:
    """False if there was nothing at the name any more, and `temp` simply took it."""
    while True:
        try:
            exchange(dir_fd, temp, name)
            return True
        except FileNotFoundError:
            pass
        try:
            rename_noreplace(dir_fd, temp, dir_fd, name)
            return False
        except FileExistsError:
            pass


def _is_idle(fd: int) -> bool:
    """Whether no program has the file open for writing. A program that has it open gets some time to finish."""
    until = time.monotonic() + IDLE_S
    while is_open_for_writing(fd):
        if time.monotonic() > until:
            return False
        time.sleep(0.0005)
    return True


def _is_changed(fd: int, sha256: str) -> bool:
    try:
        return sha256_of(fd) != sha256
    except OSError:
        return False


def _key(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino
