"""Reading a file that a person, or another program, may have made: a regular one, and no more than a bound."""

from __future__ import annotations

import errno
import os
import stat

from perdure.platform import directories


def read_bounded(path: str, most: int) -> bytes:
    """The whole content. Raises OSError, with a reason in words, for what is no file or larger than `most` bytes.

    Opened without waiting: a FIFO without a writer would hold up the thread for ever.
    """
    try:
        fd = directories.open(path, os.O_RDONLY | directories.NONBLOCK)
    except ValueError:  # a zero byte in the path
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "is not a file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes")
    return data
