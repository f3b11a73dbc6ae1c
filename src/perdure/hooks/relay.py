"""A hook handed to the process that serves its workspace, if there is one.

A client starts a process for each hook, before and after every call of a tool. So this module imports little: with a
resident recorder a hook costs hardly more than the start of Python.

    request     client NUL working directory NUL project NUL, then the JSON of the hook, to the end of the stream
    reply       `ok` NUL what to print; or `failed` NUL why
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from socket import SHUT_WR

from perdure.platform import sockets
from perdure.storage.store_id import store_id
from perdure.storage.user_dirs import data_dir, state_dir

ANSWER_S = 30.0
"""Longer than a recorder takes for a large change, shorter than a client waits for its hook."""
MOST_BYTES = 64 * 1024 * 1024


class RelayError(Exception):
    """The resident recorder has failed, or does not answer."""


def relay(hook: bytes, *, client: str, project: str) -> str | None:
    """What the hook is to print; None where no process serves the workspace. `project` is the client's project folder, or
    empty: then the nearest workspace above the working directory is meant."""
    address = _find_address(project)
    if address is None:
        return None
    with sockets.new_local() as connection:
        connection.settimeout(ANSWER_S)
        try:
            sockets.connect(connection, address)
        except OSError:
            return None  # its process has ended
        try:
            connection.sendall(
                b"\0".join((client.encode(), os.fsencode(os.getcwd()), os.fsencode(project), hook))
            )
            connection.shutdown(SHUT_WR)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError as error:
            raise RelayError(f"the recorder does not answer: {error}") from None
    status, _, text = reply.decode(errors="replace").partition("\0")
    if status != "ok":
        raise RelayError(text or "the recorder ended in the middle of the call")
    return text


def socket_path(root: str) -> str:
    """Where the recorder of a workspace listens. `root` is canonical."""
    return os.path.join(state_dir(), "hooks", f"{store_id(root)}.sock")


def _find_address(project: str) -> str | None:
    for root in [os.path.realpath(project)] if project else _folders_above(os.path.realpath(os.getcwd())):
        address = socket_path(root)
        if os.path.exists(address):
            return address
        if os.path.exists(os.path.join(data_dir(), "workspaces", store_id(root))):
            return None  # a nearer workspace, which no process serves
    return None


def _folders_above(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent
