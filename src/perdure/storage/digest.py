"""The one hash by which contents are known."""

from __future__ import annotations

import hashlib
from typing import Final

from perdure.platform.descriptors import pread

CHUNK: Final = 1 << 20


def sha256_of(fd: int) -> str:
    """The hash of a whole file, in bounded memory and without moving its position."""
    digest = hashlib.sha256()
    offset = 0
    while piece := pread(fd, CHUNK, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
