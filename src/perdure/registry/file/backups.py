"""Backups of changed files: the last contents of each, readable by their owner alone."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

from perdure.storage.user_dirs import private_dir, write_private

MAX_BACKUPS: Final = 20


def folder(target: str) -> str:
    """The folder of a file's backups, by its name and a hash of its path."""
    path_hash = hashlib.sha256(os.fsencode(target)).hexdigest()[:12]
    return private_dir("backups", f"{os.path.basename(target)}-{path_hash}")


def keep(target: str, data: bytes) -> str:
    """Returns the path of the backup. A content that is the newest backup already is not stored twice."""
    directory = folder(target)
    sha256 = hashlib.sha256(data).hexdigest()[:12]
    names = sorted(os.listdir(directory))
    if names and names[-1].endswith(sha256):
        return os.path.join(directory, names[-1])
    path = os.path.join(directory, f"{time.time_ns():020d}-{sha256}")
    write_private(path, data)
    for old in names[: max(0, len(names) + 1 - MAX_BACKUPS)]:
        try:
            os.unlink(os.path.join(directory, old))
        except FileNotFoundError:
            pass  # another process removed it
    return path
