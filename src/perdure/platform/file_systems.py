"""Which file system a path is on, as far as it matters to a database."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

# SQLite's WAL needs shared memory between its processes, which these do not offer across machines.
NETWORK: Final = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "fuse.ceph-fuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "orangefs",
        "smb3",
        "smbfs",
    }
)


def is_network(path: str) -> bool:
    """Whether a path is on a network file system. False where the system does not tell."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return type_in(file.read(), os.path.realpath(path)) in NETWORK
    except OSError:
        return False


class Space(NamedTuple):
    """The room of a file system. One that keeps no files, such as `/proc`, has no bytes at all."""

    total_bytes: int
    free_bytes: int
    can_add_files: bool


def space(path: str) -> Space:
    facts = os.statvfs(path)
    block = facts.f_frsize
    return Space(facts.f_blocks * block, facts.f_bavail * block, not facts.f_files or facts.f_favail > 0)


def type_in(mountinfo: str, path: str) -> str | None:
    """The type of the file system that holds a canonical path, by the text of `/proc/self/mountinfo`."""
    longest, found = -1, None
    for line in mountinfo.splitlines():
        fields, _, described = line.partition(" - ")
        words = fields.split()
        if len(words) < 5 or not described:
            continue
        point = _unescaped(words[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= longest:
            longest, found = len(point), described.split()[0]
    return found


def _unescaped(text: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, character)
    return text
