"""Files by their names in an open directory, and the open flags that not every system has.

The functions are those of `os`, which on a POSIX system take an open directory (`dir_fd`, `src_dir_fd`, `dst_dir_fd`).
Another system implements them with the same signatures. Python makes every descriptor close-on-exec.

| flag | `open` |
|---|---|
| `DIRECTORY` | opens a directory and nothing else |
| `PLACE` | holds a directory without the right to list it, where the system has such descriptors |
| `NOFOLLOW` | refuses a symbolic link |
| `ENTRY` | examines an entry of any kind, a symbolic link itself too |
| `NONBLOCK` | does not wait for the other end of a FIFO |
"""

from __future__ import annotations

import os
from os import access, fwalk, link, mkdir, open, readlink, rename, replace, rmdir, stat, symlink, unlink

__all__ = [
    "DIRECTORY",
    "ENTRY",
    "NOFOLLOW",
    "NONBLOCK",
    "PLACE",
    "access",
    "fwalk",
    "link",
    "mkdir",
    "open",
    "readlink",
    "rename",
    "replace",
    "rmdir",
    "stat",
    "symlink",
    "unlink",
]

PLACE: int = getattr(os, "O_PATH", os.O_RDONLY)
DIRECTORY = os.O_DIRECTORY
NOFOLLOW = os.O_NOFOLLOW
NONBLOCK = os.O_NONBLOCK
ENTRY: int = (
    os.O_PATH | os.O_NOFOLLOW
    if hasattr(os, "O_PATH")
    else os.O_RDONLY | getattr(os, "O_SYMLINK", os.O_NOFOLLOW)
)
