"""Compare-and-swap edits of a file that editors and other programs change too.

    edit_file(path, plan)

`plan` gets the current bytes (None: no file) and returns the new ones (None: no change). Processes of ours take a lock.
Other programs take none, so the new file is exchanged with the old one and the displaced content is compared with the
one that was planned on. If it differs, both are swapped back and the plan runs again on the newer content. Mode, owner,
attributes and a symbolic link are preserved, and the old content is backed up first. A crash at any point leaves the
old file or the new one.

A file that another program has open for writing is not read until it is closed: its content may be incomplete.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perdure.platform import directories
from perdure.platform.fault_points import passed, point
from perdure.platform.files import is_open_for_writing
from perdure.present.tool_errors import tool_error
from perdure.registry.errors import ChangedMeanwhile, Forbidden, RegistryUnavailable
from perdure.registry.file import backups
from perdure.registry.file.document import MAX_FILE_BYTES, WAIT_S, open_file, registry_error
from perdure.registry.file.lock import FileLock
from perdure.storage.errors import Conflict, FileError, StorageError
from perdure.storage.files import metadata
from perdure.storage.files.fingerprint import Expected
from perdure.storage.files.pending import PendingFile
from perdure.storage.files.removal import remove

Plan = Callable[[bytes | None], bytes | None]


class FileContent(NamedTuple):
    """`is_busy`: another program has the file open for writing."""

    data: bytes
    facts: metadata.FileMetadata
    is_busy: bool = False


def read_file(path: str) -> FileContent | None:
    """A regular file and its metadata; None if there is none. Raises Unreadable for anything else."""
    fd = open_file(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        try:
            data, facts = file.read(MAX_FILE_BYTES + 1), metadata.capture(fd)
            return FileContent(data, facts, is_open_for_writing(fd))
        except OSError as error:
            raise registry_error(error, os.path.basename(path)) from None


def edit_file(path: str, plan: Plan, *, wait_s: float = WAIT_S) -> None:
    """Raises what `plan` raises, before anything is changed, and RegistryError."""
    target = os.path.realpath(path)
    with _registry_errors(target):
        if read_file(target) is None and plan(None) is None:
            return  # nothing to change: create neither a lock nor a folder
        deadline = time.monotonic() + wait_s
        with FileLock(target, wait_s=wait_s) as lock:
            while not _try_edit(target, lock, plan, deadline):
                if time.monotonic() > deadline:
                    raise ChangedMeanwhile(
                        f"another program keeps changing {os.path.basename(target)}", hint="try again later"
                    )


@contextmanager
def _registry_errors(target: str) -> Iterator[None]:
    """Turn errors of the system and of the file layer into registry errors."""
    try:
        yield
    except StorageError as error:
        raise _from_storage_error(error, os.path.basename(target)) from None
    except OSError as error:
        raise registry_error(error, os.path.basename(target)) from None


def _try_edit(target: str, lock: FileLock, plan: Plan, deadline: float) -> bool:
    """One attempt; False if another program changed the file between reading and exchanging."""
    current = _read_idle(target, deadline)
    point("registry.read")
    new = plan(None if current is None else current.data)
    if new is None or (current is not None and new == current.data):
        return True
    if current is not None:
        backups.keep(target, current.data)
        point("registry.backed_up")
    if not _swap_in(target, lock, current, new):
        return False
    passed("registry.landed")
    return True


def _read_idle(target: str, deadline: float) -> FileContent | None:
    """The file once no program writes it: two reads agree, and no descriptor is open for writing."""
    while True:
        content = read_file(target)
        if content is None:
            return None
        if not content.is_busy:
            again = read_file(target)
            if again is not None and again.data == content.data:
                return content
        if time.monotonic() > deadline:
            raise ChangedMeanwhile(
                f"another program keeps writing {os.path.basename(target)}", hint="try again later"
            )
        time.sleep(0.001)


def _swap_in(target: str, lock: FileLock, current: FileContent | None, new: bytes) -> bool:
    folder, name = os.path.split(target)
    if current is None:
        os.makedirs(folder, exist_ok=True)
    dir_fd = directories.open(folder, os.O_RDONLY | directories.DIRECTORY)
    try:
        expected = "" if current is None else _sha256(current.data)
        lock.begin(expected, _sha256(new))
        facts = None if current is None else current.facts
        with PendingFile(dir_fd, name, like=facts, sync=True) as file:
            file.write(new)
            if current is None:
                file.create()
            else:
                file.replace_if(Expected(expected))
        return True
    except Conflict as conflict:
        _keep_displaced(target, conflict)
        return False
    except FileError as error:
        if error.errno == errno.EEXIST:
            return False
        raise
    finally:
        os.close(dir_fd)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _from_storage_error(error: StorageError, name: str) -> Forbidden | RegistryUnavailable:
    envelope = tool_error(error).envelope
    message = f"{name}: {envelope.context['message']}"
    if envelope.reason_hint == "permission":
        return Forbidden(message, hint="check its permissions")
    return RegistryUnavailable(message)


def remove_file(path: str, sha256: str) -> bool:
    """Remove a file that has this content. Whether it is gone: any other content stays."""
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    with _registry_errors(target), FileLock(target) as lock:
        dir_fd = directories.open(folder, os.O_RDONLY | directories.DIRECTORY)
        try:
            if (content := read_file(target)) is not None:
                backups.keep(target, content.data)
            lock.begin(
                sha256, ""
            )  # nothing is planned: after a crash a foreign content goes back to its name
            remove(dir_fd, name, Expected(sha256), sync=True)
            return True
        except Conflict as conflict:
            _keep_displaced(target, conflict)
            return False
        finally:
            os.close(dir_fd)


def recover(path: str) -> None:
    """Finish what a killed process left beside a file, also where the file itself is gone."""
    target = os.path.realpath(path)
    with _registry_errors(target), FileLock(target):
        pass


def _keep_displaced(target: str, conflict: Conflict) -> None:
    """Back up foreign contents that lost their name."""
    with conflict:
        for displaced in conflict.displaced:
            displaced.seek(0)
            backups.keep(target, displaced.read() or b"")
