"""The user of this process, and owner, mode, extended attributes and access control list of a file.

user_id(), group_id()          the owner and group of the files that this process makes
set_mode(fd, mode)
set_owner(fd, user, group)     -1 leaves a user or group as it is
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import fchmod as set_mode
from os import fchown as set_owner
from os import getegid as group_id
from os import geteuid as user_id

__all__ = [
    "ACL",
    "attribute_names",
    "current_umask",
    "drop_acl",
    "get_attribute",
    "group_id",
    "private_umask",
    "set_attribute",
    "set_mode",
    "set_owner",
    "user_id",
]

ACL = "system.posix_acl_access"
_NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


def current_umask() -> int:
    """The mode bits that a new file does not get."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)  # meanwhile, other threads create private files
        os.umask(mask)
        return mask


@contextmanager
def private_umask() -> Iterator[None]:
    """What is made meanwhile is for its owner alone. For the whole process: only where no other thread runs."""
    mask = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(mask)


if sys.platform == "linux":

    def attribute_names(fd: int) -> list[str]:
        """Extended attributes, the access control list among them; empty where the file system has none."""
        try:
            return os.listxattr(fd)
        except OSError as error:
            if error.errno in _NO_XATTRS:
                return []
            raise

    def get_attribute(fd: int, name: str) -> bytes:
        return os.getxattr(fd, name)

    def set_attribute(fd: int, name: str, value: bytes) -> bool:
        """Whether the file has this attribute now."""
        try:
            if os.getxattr(fd, name) == value:
                return True  # a security label that the system gave by itself
        except OSError:
            pass
        try:
            os.setxattr(fd, name, value)
        except OSError:
            return False
        return True

    def drop_acl(fd: int) -> bool:
        """Remove the access control list that a new file got from its directory. Whether there is none now."""
        try:
            if ACL in attribute_names(fd):
                os.removexattr(fd, ACL)
        except OSError:
            return False
        return True

else:
    # Python reads no attributes there: the caller reports them as lost.

    def attribute_names(fd: int) -> list[str]:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def get_attribute(fd: int, name: str) -> bytes:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def set_attribute(fd: int, name: str, value: bytes) -> bool:
        return False

    def drop_acl(fd: int) -> bool:
        return True
