"""Writing every byte, and closing what was only read."""

from __future__ import annotations

import os
from io import FileIO

from perdure.platform.fault_points import shortened


def write_all(fd: int, data: bytes | memoryview, name: str) -> None:
    """Write every byte; a short write goes on where it stopped. `name` is the fault point to pass."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(fd, rest[: shortened(name, len(rest))]) :]


def close_quietly(file: int | FileIO) -> None:
    """Close what was read, or only held a place. Its error tells of no loss, and must not undo what is done."""
    try:
        if isinstance(file, int):
            os.close(file)
        else:
            file.close()
    except OSError:
        pass
