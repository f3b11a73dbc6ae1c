"""Restores files that a process had displaced and not yet compared when it was killed.

A file is exchanged with the one that replaces it; only then is the displaced file compared with the expected one. A
process killed in between may leave another program's newer content under a temporary name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO

from perdure.platform import directories
from perdure.platform.files import rename_noreplace
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import swap, temp_names
from perdure.storage.files.swap import directory_lock, list_directory, open_if_regular
from perdure.storage.journal import Row
from perdure.workspace.entries import EntryState, state_after, state_at, state_before
from perdure.workspace.paths.roots import Roots, rooted
from perdure.workspace.recovery.temp_cleanup import Rescue


def restore_displaced(
    roots: Roots, rows: Iterable[Row], rescue: Rescue
) -> dict[str, ToolError | StorageError | OSError]:
    """`rows` are the changes that may or may not have been applied. Returns the directories where that failed."""
    failed: dict[str, ToolError | StorageError | OSError] = {}
    of_folder: dict[str, list[Row]] = {}
    for row in rows:
        of_folder.setdefault(row.path.rpartition("/")[0], []).append(row)
    for folder, changed in of_folder.items():
        try:
            dir_fd = roots.open_directory(*rooted(folder))
        except ToolError:
            continue  # what cannot be reached is not reached by settling its rows either
        try:
            _put_back_in(dir_fd, changed, rescue)
        except JournalError:
            raise
        except (ToolError, StorageError, OSError) as error:
            failed[folder] = error
        finally:
            os.close(dir_fd)
    return failed


def _put_back_in(dir_fd: int, rows: list[Row], rescue: Rescue) -> None:
    expected = {state for row in rows for state in (state_before(row), state_after(row))}
    for temp in _listed(dir_fd):
        named = temp_names.parsed(temp)
        if named is None or named.use != "x" or temp_names.owner_lives(named.owner) is not False:
            continue
        found = state_at(dir_fd, temp)
        if found is None:
            continue
        is_full = found.kind == "directory" and bool(list_directory(dir_fd, temp))
        if found not in expected or is_full:
            file = open_if_regular(dir_fd, temp)
            try:
                _return(dir_fd, temp, file, rows, rescue)
            finally:
                if file is not None:
                    file.close()


def _return(dir_fd: int, temp: str, file: FileIO | None, rows: list[Row], rescue: Rescue) -> None:
    """Files land one after the other: it came from the last place that holds what it should."""
    for row in sorted(rows, key=lambda row: (row.new_sha is None, row.seq), reverse=True):
        name = row.path.rpartition("/")[2]
        wanted = state_after(row)
        if row.old_sha is None or state_at(dir_fd, name) != wanted:
            continue
        if wanted is None:
            with suppress(FileExistsError):  # another program wrote it again: the displaced file is rescued
                rename_noreplace(dir_fd, temp, dir_fd, name)
            return
        ours = directories.open(name, directories.ENTRY, dir_fd=dir_fd)
        try:
            with directory_lock(dir_fd):
                if wanted.kind == "file":
                    _swap_back(dir_fd, temp, name, file, wanted, rescue)
                else:
                    swap.put_back(dir_fd, temp, name, file, ours).close()
        finally:
            os.close(ours)
        return


def _swap_back(
    dir_fd: int, temp: str, name: str, file: FileIO | None, wanted: EntryState, rescue: Rescue
) -> None:
    ours = open_if_regular(dir_fd, name)
    if ours is not None:
        with ours:
            ended = swap.swap_back(dir_fd, temp, name, file, ours.fileno(), wanted.sha.hex())
            for lost in ended.displaced:
                rescue(lost.fileno())
            ended.close()


def _listed(dir_fd: int) -> list[str]:
    fd = directories.open(".", os.O_RDONLY | directories.DIRECTORY, dir_fd=dir_fd)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)
