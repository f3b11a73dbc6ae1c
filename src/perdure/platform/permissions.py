"""The user of this process, and owner, mode, extended attributes and access control list of a file."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ACL: Final = "system.posix_acl_access"
_NO_XATTRS: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


def user_id() -> int:
    """The owner of the files that this process makes."""
    return os.geteuid()


def group_id() -> int:
    return os.getegid()


def set_mode(fd: int, mode: int) -> None:
    os.fchmod(fd, mode)


def set_owner(fd: int, user: int, group: int) -> None:
    """-1 leaves a user or group as it is."""
    os.fchown(fd, user, group)


def current_umask() -> int:
    """The mode bits that a new file does not get."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1], 8) for line in file if line.startswith("Umask:"))
    except (OSError, StopIteration):
        mask = os.umask(0o077)  # for an instant, other threads make files that nobody else may read
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
