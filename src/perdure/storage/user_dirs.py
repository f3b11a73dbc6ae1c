"""The user's directories for what belongs to no workspace: caches, the event log, running hosts."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from perdure.platform import directories
from perdure.platform.sync import sync_directory


def state_dir() -> str:
    """For this user only. `PERDURE_HOME` moves it whole."""
    home = os.environ.get("PERDURE_HOME")
    if not home:
        base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        home = os.path.join(base, "perdure")
    return home


def data_dir() -> str:
    """Where what must not be lost is kept. `PERDURE_HOME` moves it, too."""
    home = os.environ.get("PERDURE_HOME")
    if not home:
        base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
        home = os.path.join(base, "perdure")
    return home


def sign_ins_folder() -> str:
    """Where the tokens of remote servers are; made by the first sign-in."""
    return os.path.join(data_dir(), "sign-ins")


def make_private_folders(folder: str) -> None:
    """With every folder above it that is missing. What is kept there is as durable as the names that lead to it."""
    missing = []
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for made in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(made, mode=0o700)
        fd = directories.open(os.path.dirname(made), os.O_RDONLY | directories.DIRECTORY)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)


def make_private(path: str) -> None:
    """Make the file for its owner alone; what SQLite makes beside it takes the same mode.

    One that is there is not opened: closing it would drop the locks that this process holds on it through SQLite.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None


def private_dir(*parts: str) -> str:
    """A directory below the state directory, made if need be, readable by its owner alone."""
    path = os.path.join(state_dir(), *parts)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def write_private(path: str, data: bytes) -> None:
    """Replace a file of ours in one step. It is a convenience, so nothing is synced."""
    temporary = f"{path}.{os.getpid()}"
    fd = directories.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | directories.NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
