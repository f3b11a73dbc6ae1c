"""Files that a process had put aside and not looked at when it died: what nobody expected goes back to its name.

A file changes places with the one that shall replace it, and only then is what came out compared with what was
expected. Whoever dies in between leaves somebody's newer content under a temporary name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO

from perdure.platform import directories
from perdure.platform.files import rename_noreplace
from perdure.protocol.envelope import ToolError
from perdure.storage.digest import sha256_of
from perdure.storage.errors import JournalError, StorageError
from perdure.storage.files import swap, temp_names
from perdure.storage.files.swap import directory_lock, open_if_regular
from perdure.storage.journal import Digest, Row
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
    expected = {sha for row in rows for sha in (row.old_sha, row.new_sha)}
    for temp in _listed(dir_fd):
        named = temp_names.parsed(temp)
        if named is None or named.use != "x" or temp_names.owner_lives(named.owner) is not False:
            continue
        file = open_if_regular(dir_fd, temp)
        if file is not None:
            with file:
                if _sha(file) not in expected:
                    _return(dir_fd, temp, file, rows, rescue)


def _return(dir_fd: int, temp: str, file: FileIO, rows: list[Row], rescue: Rescue) -> None:
    """Files land one after the other: it came from the last place that holds what it should."""
    for row in sorted(rows, key=lambda row: (row.new_sha is None, row.seq), reverse=True):
        name = row.path.rpartition("/")[2]
        ours = open_if_regular(dir_fd, name)
        if row.old_sha is None or (_sha(ours) if ours is not None else None) != row.new_sha:
            if ours is not None:
                ours.close()
            continue
        if ours is None:
            with suppress(FileExistsError):  # another program wrote it again: the displaced file is rescued
                rename_noreplace(dir_fd, temp, dir_fd, name)
            return
        with ours, directory_lock(dir_fd):
            ended = swap.swap_back(dir_fd, temp, name, file, ours.fileno(), _sha(ours).hex())
            for lost in ended.displaced:
                rescue(lost.fileno())
            ended.close()
        return


def _listed(dir_fd: int) -> list[str]:
    fd = directories.open(".", os.O_RDONLY | directories.DIRECTORY, dir_fd=dir_fd)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _sha(file: FileIO) -> Digest:
    return bytes.fromhex(sha256_of(file.fileno()))
