"""Who can read and change what is ours: folders of the user, and the files of the stores."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import partial

from perdure.cli.doctor.finding import DoctorContext, Finding, ok
from perdure.cli.locations import store_place
from perdure.platform.permissions import user_id
from perdure.storage.user_dirs import data_dir, state_dir

CHECK = "permissions"


def check(context: DoctorContext) -> Iterator[Finding]:
    found = 0
    for path in dict.fromkeys(_places(context)):
        for finding in _looked(path):
            found += 1
            yield finding
    for workspace in context.settings.workspaces:
        if not os.access(workspace, os.W_OK | os.X_OK):
            found += 1
            yield Finding(
                CHECK,
                "error",
                f"the workspace {workspace} cannot be written",
                "every write there will be refused",
                "give yourself write permission, or choose another workspace",
            )
    if not found:
        yield ok(CHECK, "what is ours is for its owner alone, and can be written")


def _places(context: DoctorContext) -> Iterator[str]:
    for folder in dict.fromkeys((state_dir(), data_dir())):
        yield from _entries(folder)
    folder = store_place(context.settings).folder
    yield folder
    yield from (os.path.join(folder, name) for name in ("journal.db", "blobs", "lock"))
    state = context.settings.state or os.path.join(data_dir(), "state.db")
    if "://" not in state and state != "memory:":
        yield state


def _entries(folder: str) -> list[str]:
    """Everything that Perdure keeps in one of its two folders; the folder itself if it cannot be listed."""
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except FileNotFoundError:
        return []
    except OSError:
        return [folder]


def _looked(path: str) -> Iterator[Finding]:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding(
            CHECK,
            "error",
            f"{path} cannot be looked at: {error.strerror}",
            "what is kept there cannot be used",
            "look at the permissions of the folders above it",
        )
        return
    if stat.S_ISLNK(facts.st_mode):
        return
    if facts.st_uid != user_id():
        yield Finding(
            CHECK,
            "error",
            f"{path} belongs to another user",
            "it may be unreadable or read-only, and its content cannot be trusted: perdure was run as another user here",
            "give it back to yourself with chown, or remove it where it is not needed",
        )
        return
    wanted = 0o700 if stat.S_ISDIR(facts.st_mode) else 0o600
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        yield Finding(
            CHECK,
            "error",
            f"{path} can be reached by others (mode {mode:03o})",
            "it holds contents of your files and state; others on this machine could read or change them",
            f"chmod {mode & 0o700:03o} {path}",
            partial(_narrowed, path, mode & 0o700),
        )
    if mode & wanted != wanted:
        yield Finding(
            CHECK,
            "error",
            f"{path} cannot be used by its owner (mode {mode:03o})",
            "hosts and workers need to read and write it",
            f"chmod {wanted:03o} {path}",
            partial(_narrowed, path, wanted),
        )


def _narrowed(path: str, mode: int) -> str:
    os.chmod(path, mode, follow_symlinks=False) if os.chmod in os.supports_follow_symlinks else os.chmod(
        path, mode
    )
    return f"set the mode of {path} to {mode:03o}"
