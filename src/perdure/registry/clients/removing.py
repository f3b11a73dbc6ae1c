"""Removing a file that only we have written, and only if that is still so."""

from __future__ import annotations

import os

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import rename_noreplace
from perdure.platform.sync import sync_directory
from perdure.registry import backups
from perdure.registry.errors import RegistryUnavailable
from perdure.registry.file_lock import FileLock
from perdure.storage.digest import sha256_of
from perdure.storage.files import temp_names
from perdure.storage.files.swap import open_if_regular


def remove_file(path: str, sha256: str) -> bool:
    """Whether it is gone; not if it has another content, which then stays or comes back to its name."""
    try:
        return _removed(os.path.realpath(path), sha256)
    except OSError as error:
        raise _refused(path, error) from None


def settle(path: str) -> None:
    """Finish what a killed process left beside a file, also where the file itself is gone."""
    try:
        with FileLock(os.path.realpath(path)):
            pass
    except OSError as error:
        raise _refused(path, error) from None


def _refused(path: str, error: OSError) -> RegistryUnavailable:
    return RegistryUnavailable(f"{os.path.basename(path)}: {error.strerror}")


def _removed(target: str, sha256: str) -> bool:
    folder, name = os.path.split(target)
    with FileLock(target) as lock:
        dir_fd = directories.open(folder, os.O_RDONLY | directories.DIRECTORY)
        try:
            lock.begin(
                sha256, ""
            )  # nothing is planned: after a crash a foreign content goes back to its name
            aside = temp_names.fresh("x")
            point("view.before_remove")
            directories.rename(name, aside, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            point("view.aside")
            if not _is(dir_fd, aside, sha256):
                _put_back(dir_fd, aside, name, target)
                return False
            backups.keep(target, _content(dir_fd, aside))
            directories.unlink(aside, dir_fd=dir_fd)
            passed("view.removed")
            sync_directory(dir_fd)
            return True
        finally:
            os.close(dir_fd)


def _is(dir_fd: int, name: str, sha256: str) -> bool:
    file = open_if_regular(dir_fd, name)
    if file is None:
        return False
    with file:
        return sha256_of(file.fileno()) == sha256


def _content(dir_fd: int, name: str) -> bytes:
    file = open_if_regular(dir_fd, name)
    if file is None:
        return b""
    with file:
        return file.read() or b""


def _put_back(dir_fd: int, aside: str, name: str, target: str) -> None:
    """To its name; where that is taken already, the newer one stays and this one is kept as a backup."""
    try:
        rename_noreplace(dir_fd, aside, dir_fd, name)
    except FileExistsError:
        backups.keep(target, _content(dir_fd, aside))
        directories.unlink(aside, dir_fd=dir_fd)
