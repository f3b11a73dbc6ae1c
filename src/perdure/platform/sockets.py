"""Sockets between processes of one user on one machine, and what the system tells about a connection."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_PATH = 100  # Linux allows 107 bytes, macOS 103


def new_local() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def bind_private(listener: socket.socket, path: str) -> None:
    """Make a local socket reachable at a path, for its owner alone. Raises OSError where the path is taken."""
    from perdure.platform.permissions import private_umask  # not for a hook, which only connects

    with private_umask(), _short_path(path) as address:
        listener.bind(address)


def connect(connection: socket.socket, path: str) -> None:
    """As `socket.connect`, also where the path is longer than an address may be."""
    with _short_path(path) as address:
        connection.connect(address)


@contextmanager
def _short_path(path: str) -> Iterator[str]:
    folder, name = os.path.split(path)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def peer_user(connection: socket.socket) -> int | None:
    """The user of the process at the other end; None where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)  # pid, user, group
    return int.from_bytes(credentials[4:8], sys.byteorder)


def close_if_unread(connection: socket.socket, seconds: int) -> None:
    """Let the system close a TCP connection whose other end does not take what was sent, where it can."""
    if connection.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)


def unsent_bytes(connection: socket.socket) -> int:
    """What the other end has not acknowledged yet."""
    from fcntl import ioctl
    from termios import TIOCOUTQ

    return int.from_bytes(ioctl(connection.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)
