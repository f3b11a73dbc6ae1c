"""Removing what a killed process left beside the files it was about to write, and nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from perdure.platform import directories
from perdure.storage.files import temp_names
from perdure.storage.files.swap import list_directory, open_if_regular, read_link
from perdure.storage.files.temp_names import TempName, Use

_KINDS: Final[dict[Use, tuple[int, ...]]] = {
    "w": (stat.S_IFREG,),
    "x": (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR),
}
Rescue = Callable[[int | bytes], bool]
"""Whether the content of an open file, or the target of a link, which may be the only copy, is kept elsewhere by now."""


def sweep(dir_fds: Iterable[int], rescue: Rescue, *, before: float | None = None) -> tuple[str, ...]:
    """Remove our stale temporary files from these directories. Returns the names removed.

    Stale is what belongs to a process that no longer lives. Of an owner in another container, or from before a
    restart of the machine, nothing can be known; its files are stale if they are older than `before` (seconds since
    1970), which a recovery that holds the workspace's lock sets to its own start. A file that was changing places
    when its owner died goes only if `rescue` says so.
    """
    return tuple(name for dir_fd in dir_fds for name in _swept(dir_fd, rescue, before))


def _swept(dir_fd: int, rescue: Rescue, before: float | None) -> Iterable[str]:
    fd = directories.open(".", os.O_RDONLY | directories.DIRECTORY, dir_fd=dir_fd)
    try:
        for name in os.listdir(fd):
            temp = temp_names.parsed(name)
            if temp is not None and _is_stale(fd, name, temp, before) and _is_safe(fd, name, temp, rescue):
                try:
                    _remove(fd, name)
                except FileNotFoundError:
                    continue  # another recovery was faster
                yield name
    finally:
        os.close(fd)


def _is_stale(dir_fd: int, name: str, temp: TempName, before: float | None) -> bool:
    try:
        info = directories.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if stat.S_IFMT(info.st_mode) not in _KINDS[temp.use]:
        return False
    match temp_names.owner_lives(temp.owner):
        case None:
            return before is not None and info.st_ctime < before
        case lives:
            return not lives


def _is_safe(dir_fd: int, name: str, temp: TempName, rescue: Rescue) -> bool:
    if temp.use == "w":
        return True
    if (target := read_link(dir_fd, name)) is not None:
        return rescue(target)
    file = open_if_regular(dir_fd, name)
    if file is None:
        return _is_empty_directory(dir_fd, name)
    with file:
        return rescue(file.fileno())


def _is_empty_directory(dir_fd: int, name: str) -> bool:
    try:
        return not list_directory(dir_fd, name)
    except OSError:
        return False


def _remove(dir_fd: int, name: str) -> None:
    if stat.S_ISDIR(directories.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
        directories.rmdir(name, dir_fd=dir_fd)
    else:
        directories.unlink(name, dir_fd=dir_fd)
