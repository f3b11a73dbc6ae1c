"""Files without a name: nobody else sees them, and a killed process leaves nothing of them behind.

    opened(dir_fd, mode)     one in an open directory; None where the file system has no such files
    link(fd, dir_fd, name)   its first name

That name is given through /proc: where there is none, there are no such files either.
"""

from __future__ import annotations

import errno
import os
from typing import Final

FLAGS: Final = os.O_RDWR | os.O_CLOEXEC
_TMPFILE: Final = getattr(os, "O_TMPFILE", 0) if os.path.exists("/proc/self/fd") else 0
_NONE: Final = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS)


def opened(dir_fd: int, mode: int) -> int | None:
    if not _TMPFILE:
        return None
    try:
        return os.open(".", FLAGS | _TMPFILE, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return None


def link(fd: int, dir_fd: int, name: str) -> None:
    """FileExistsError if the name is taken."""
    os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)
