"""What a replaced file keeps: mode, owner, group, extended attributes, access control list.

What could not be kept is a warning, never a failure: the content matters more.

| warning | why |
|---|---|
| `owner_not_kept`, `group_not_kept` | only the superuser gives files away |
| `setid_dropped` | set-user-id, set-group-id and file capabilities do not outlive a change of content |
| `mode_not_kept` | the system refused the mode |
| `acl_not_kept` | the access control list could not be set |
| `xattr_not_kept:NAME` | this extended attribute could not be read or set |
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Final

import msgspec

from perdure.platform.permissions import (
    ACL,
    attribute_names,
    current_umask,
    drop_acl,
    get_attribute,
    group_id,
    set_attribute,
    set_mode,
    set_owner,
    user_id,
)

_CAPABILITY: Final = "security.capability"
_OF_CONTENT: Final = ("security.ima", "security.evm")  # signatures of the old content
_SETID: Final = stat.S_ISUID | stat.S_ISGID
_GONE: Final = getattr(errno, "ENODATA", errno.ENOENT)


class FileMetadata(msgspec.Struct, frozen=True):
    """A file without its content. Plain data, so that a journal can keep it for a file that is deleted."""

    mode: int
    uid: int
    gid: int
    xattrs: dict[str, bytes] = {}
    unread: tuple[str, ...] = ()


def capture(fd: int) -> FileMetadata:
    """Everything of an open file that its replacement should have."""
    info = os.fstat(fd)
    xattrs: dict[str, bytes] = {}
    unread: list[str] = []
    try:
        names = attribute_names(fd)
    except OSError:
        names = []
        unread.append("*")
    for name in names:
        try:
            xattrs[name] = get_attribute(fd, name)
        except OSError as error:
            if error.errno != _GONE:
                unread.append(name)
    return FileMetadata(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, xattrs, tuple(unread))


def from_journal(
    detail: dict[str, Any], now: FileMetadata | None = None, *, key: str = "file_mode"
) -> FileMetadata | None:
    """The facts of a file as far as its row in the journal keeps them; of one that is there, its own but for the mode."""
    mode = detail.get(key)
    if mode is None:
        return now
    return of_mode(int(mode)) if now is None else msgspec.structs.replace(now, mode=int(mode))


def of_mode(mode: int) -> FileMetadata:
    return FileMetadata(mode, user_id(), group_id())


def made_executable(facts: FileMetadata | None, executable: bool) -> FileMetadata:
    """Set or clear execution for all who may read the file; `facts` are None for a new file."""
    found = facts or of_mode(0o666 & ~current_umask())
    mode = found.mode & ~0o111
    return msgspec.structs.replace(found, mode=mode | (mode & 0o444) >> 2 if executable else mode)


def apply(fd: int, facts: FileMetadata) -> tuple[str, ...]:
    """Give an open file these facts. Returns warnings for what it could not have.

    The order matters: a change of owner clears the set-id bits, and an access control list writes the group
    bits, so the mode comes last. Set-id bits and capabilities are dropped, as the kernel drops them on a write: a
    program that runs with its owner's rights must not get new content from another user.
    """
    warnings = [f"xattr_not_kept:{name}" for name in facts.unread]
    _give(fd, facts, warnings)
    if ACL not in facts.xattrs and not drop_acl(fd):
        warnings.append("acl_not_kept")
    for name, value in facts.xattrs.items():
        if name in _OF_CONTENT:
            continue
        if name == _CAPABILITY:
            warnings.append("setid_dropped")
        elif not set_attribute(fd, name, value):
            warnings.append("acl_not_kept" if name == ACL else f"xattr_not_kept:{name}")
    mode = facts.mode
    if mode & _SETID:
        mode &= ~_SETID
        warnings.append("setid_dropped")
    if "acl_not_kept" in warnings:
        # The group bits were the list's mask: without the list they would grant more than it did.
        mode &= ~stat.S_IRWXG
    if "group_not_kept" in warnings:
        # What was granted to one group is not granted to another.
        mode &= ~stat.S_IRWXG | ((mode & stat.S_IRWXO) << 3)
    try:
        set_mode(fd, mode)
    except OSError:
        warnings.append("mode_not_kept")
    return tuple(dict.fromkeys(warnings))


def _give(fd: int, facts: FileMetadata, warnings: list[str]) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) == (facts.uid, facts.gid):
        return
    try:
        set_owner(fd, facts.uid, facts.gid)
        return
    except OSError:
        pass
    if now.st_uid != facts.uid:
        warnings.append("owner_not_kept")
    if now.st_gid != facts.gid:
        try:
            set_owner(fd, -1, facts.gid)  # one of our own groups can be given
        except OSError:
            warnings.append("group_not_kept")
