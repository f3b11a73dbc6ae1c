"""Things that take long to make, kept from one process to the next in the user's own directory.

A file begins with the hash of what follows: one that the disk has damaged is made again.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from perdure.storage.user_dirs import private_dir, write_private


class Shelved:
    """One kind of them. Where nothing can be kept, everything is made each time."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def load(self, key: str) -> bytes | None:
        try:
            with open(self._path(key), "rb") as file:
                digest, data = file.read(32), file.read()
        except OSError:
            return None
        return data if hashlib.sha256(data).digest() == digest else None

    def save(self, key: str, data: bytes) -> None:
        with suppress(OSError):
            write_private(self._path(key), hashlib.sha256(data).digest() + data)

    def _path(self, key: str) -> str:
        return os.path.join(private_dir("cache"), f"{self._kind}-{key}")
