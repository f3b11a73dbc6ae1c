"""When a hook of each client last ran: `perdure doctor` shows whether the client really runs what was installed."""

from __future__ import annotations

import os
from contextlib import suppress

from perdure.storage.user_dirs import private_dir, state_dir

FOLDER = "hooks"


def note_run(client: str) -> None:
    """The time is that of an empty file. A hook goes on without it."""
    path = _path(client)
    with suppress(OSError):
        try:
            os.utime(path)
        except FileNotFoundError:
            private_dir(FOLDER)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def last_run(client: str) -> float | None:
    try:
        return os.stat(_path(client)).st_mtime
    except OSError:
        return None


def _path(client: str) -> str:
    return os.path.join(state_dir(), FOLDER, f"{client}.ran")
