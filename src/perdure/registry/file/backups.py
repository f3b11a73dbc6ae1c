"""What a file held before it was changed: the last few contents of each, for its owner alone."""

from __future__ import annotations

import hashlib
import os
import time
from typing import Final

from perdure.storage.user_dirs import private_dir, write_private

KEPT: Final = 20


def folder(target: str) -> str:
    """Where the backups of a file are, by its name and a mark of its whole path."""
    mark = hashlib.sha256(os.fsencode(target)).hexdigest()[:12]
    return private_dir("backups", f"{os.path.basename(target)}-{mark}")


def keep(target: str, data: bytes) -> str:
    """Keep a content. Returns the backup's path; one that is the newest already is not kept twice."""
    where = folder(target)
    sha256 = hashlib.sha256(data).hexdigest()[:12]
    names = sorted(os.listdir(where))
    if names and names[-1].endswith(sha256):
        return os.path.join(where, names[-1])
    path = os.path.join(where, f"{time.time_ns():020d}-{sha256}")
    write_private(path, data)
    for old in names[: max(0, len(names) + 1 - KEPT)]:
        try:
            os.unlink(os.path.join(where, old))
        except FileNotFoundError:
            pass  # another process was faster
    return path
