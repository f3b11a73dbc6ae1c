"""A hook handed to the process that serves its workspace, if there is one.

A client starts a process for each hook, before and after every call of a tool. So this module imports little: with a
resident recorder a hook costs hardly more than the start of Python.

    request     client, working directory and project, each ended by NUL; variables as NAME=VALUE NUL, and one more NUL;
                then the JSON of the hook, to the end of the stream
    reply       `ok` NUL what the hook prints; `elsewhere` NUL where the hook is about another workspace; or `failed` NUL why
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from socket import SHUT_WR

from perdure.platform import sockets
from perdure.platform.process_tree import client_process
from perdure.storage.user_dirs import data_dir, state_dir

CLIENTS = ("claude-code", "codex", "gemini", "cursor")
ANSWER_S = 12.0
MOST_BYTES = 64 * 1024 * 1024
UNKNOWN = "-"
"""Stands for a client or project that the hook's process does not know."""
PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR")
PROCESS_VARIABLE = "PERDURE_CLIENT_PROCESS"
"""The client's process (`platform/process_tree.py`), in the header of a request; in the environment of a hook that
`perdure serve` starts for a client."""
_VARIABLES = (*PROJECT_VARIABLES, "HOME")


class RelayError(Exception):
    """The resident recorder has failed, or does not answer."""


def relay(hook: bytes, *, client: str | None, workspace: str | None) -> str | None:
    """What the hook prints; None where no process serves its workspace. `workspace` is what the user named; else it is
    the client's project, else the nearest workspace above the working directory."""
    project = workspace or os.environ.get("PERDURE_WORKSPACE") or _project()
    address = _find_address(project)
    if address is None:
        return None
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    variables.append(f"{PROCESS_VARIABLE}={find_client() or ''}")
    request = encode_request(hook, client=client, cwd=os.getcwd(), project=project, variables=variables)
    return send_request(address, request)


def find_client() -> str | None:
    """The client's process."""
    return os.environ.get(PROCESS_VARIABLE) or client_process()


def send_request(address: str, request: bytes) -> str | None:
    """What the recorder at an address has the hook print; None where no process listens, or it is about another
    workspace."""
    with sockets.new_local() as connection:
        connection.settimeout(ANSWER_S)
        try:
            sockets.connect(connection, address)
        except OSError:
            return None  # its process has ended
        try:
            connection.sendall(request)
            connection.shutdown(SHUT_WR)
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError as error:
            raise RelayError(f"the recorder does not answer: {error}") from None
    status, _, text = reply.decode(errors="replace").partition("\0")
    if status == "failed" or not status:
        raise RelayError(text or "the recorder ended in the middle of the hook")
    return text if status == "ok" else None


def encode_request(
    hook: bytes, *, client: str | None, cwd: str, project: str, variables: Iterable[str] = ()
) -> bytes:
    header = "\0".join((client or UNKNOWN, cwd, project or UNKNOWN, *variables, "", ""))
    return os.fsencode(header) + hook


def _project() -> str:
    return next((os.environ[name] for name in PROJECT_VARIABLES if os.environ.get(name)), "")


def socket_path(root: str) -> str:
    """Where the recorder of a workspace listens. The name is the folder's identity in its file system, which needs no hash
    function: to load one takes longer than the rest of a hook. A recorder checks that it is the one that is meant."""
    info = os.stat(root)
    return os.path.join(state_dir(), "hooks", f"{info.st_dev:x}-{info.st_ino:x}.sock")


def _find_address(project: str) -> str | None:
    if project:
        return _address_of(os.path.realpath(project))
    for folder in _folders_above(os.path.realpath(os.getcwd())):
        address = _address_of(folder)
        if address is not None or _is_workspace(folder):
            return address  # None: a nearer workspace, which no process serves
    return None


def _address_of(root: str) -> str | None:
    try:
        address = socket_path(root)
    except OSError:
        return None  # there is no such folder
    return address if os.path.exists(address) else None


def _is_workspace(root: str) -> bool:
    from perdure.storage.store_id import store_id

    return os.path.exists(os.path.join(data_dir(), "workspaces", store_id(root)))


def _folders_above(folder: str) -> Iterator[str]:
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent
