"""A kept content as it stands in a row: as it is, compressed, as a file in `blobs/`, or sealed (`storage/cipher.py`)."""

from __future__ import annotations

import zlib

RAW, ZLIB, FILE, SEALED = 0, 1, 2, 3


def unpacked(codec: int, data: bytes | None) -> bytes | None:
    """What damaged bytes stand for is nothing that has the right hash."""
    if codec in (FILE, SEALED) or data is None:
        return None
    try:
        return zlib.decompress(data) if codec == ZLIB else bytes(data)
    except zlib.error:
        return b""
