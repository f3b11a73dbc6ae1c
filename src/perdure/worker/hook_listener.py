"""The thread that takes hooks for a worker's workspace.

Of several workers on one workspace one listens; the others wait for its lock and take its place when it ends. A hook that
arrives in between works alone (`hooks/relay.py`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from perdure.hooks.relay import MOST_BYTES, socket_path
from perdure.platform import sockets
from perdure.platform.locks import lock
from perdure.platform.permissions import user_id
from perdure.storage.user_dirs import private_dir

log = logging.getLogger(__name__)

BACKLOG: Final = 64
IDLE_S: Final = 10.0
READ_S: Final = 5.0


class HookRequest(msgspec.Struct, frozen=True):
    """A hook as its process was started: `json` is what the client told it."""

    client: str
    cwd: str
    project: str
    json: bytes


class HookListener:
    """`handle` gives what the hook is to print, or raises. `idle` is called when no hook has come for a while."""

    def __init__(self, root: str, handle: Callable[[HookRequest], str], idle: Callable[[], None]) -> None:
        self._path = socket_path(os.path.realpath(root))
        self._handle = handle
        self._idle = idle
        self._listener: socket.socket | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._is_closed = True
        if self._listener is not None:
            with suppress(OSError):
                os.unlink(self._path)
            self._listener.close()

    def _run(self) -> None:
        try:
            private_dir("hooks")
            fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            lock(fd)  # released by the end of the process
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            listener = sockets.new_local()
            sockets.bind_private(listener, self._path)
            listener.listen(BACKLOG)
            listener.settimeout(IDLE_S)
        except OSError as error:
            log.warning("hooks are not taken: %s", error)
            return
        self._listener = listener
        while not self._is_closed:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self._guard(self._idle)
                continue
            except OSError as error:
                if not self._is_closed:
                    log.warning("hooks are no longer taken: %s", error)
                return
            with connection:
                self._guard(partial(self._answer, connection))

    def _answer(self, connection: socket.socket) -> None:
        if sockets.peer_user(connection) not in (user_id(), None):
            return
        connection.settimeout(READ_S)
        request = _read(connection)
        try:
            reply = f"ok\0{self._handle(request)}"
        except Exception as error:
            log.warning("a hook of %s failed: %s", request.client, error)
            reply = f"failed\0{error}"
        connection.sendall(reply.encode(errors="replace"))

    def _guard(self, work: Callable[[], None]) -> None:
        """One hook that fails must not end the thread."""
        try:
            work()
        except Exception as error:
            log.warning("hooks: %s: %s", type(error).__name__, error)


def _read(connection: socket.socket) -> HookRequest:
    pieces: list[bytes] = []
    size = 0
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise ValueError("a hook of more than 64 MB")
    client, cwd, project, told = b"".join(pieces).split(b"\0", 3)
    return HookRequest(client.decode(errors="replace"), os.fsdecode(cwd), os.fsdecode(project), told)
