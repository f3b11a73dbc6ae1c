"""The thread that takes hooks for a worker's workspace.

Of several workers on one workspace one listens; the others wait for its lock and take its place when it ends. A hook that
arrives in between works alone (`hooks/relay.py`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from perdure.platform.locks import lock
from perdure.platform.permissions import user_id
from perdure.present.error_text import describe_error
from perdure.storage.user_dirs import private_dir

if TYPE_CHECKING:
    from socket import socket

log = logging.getLogger(__name__)

BACKLOG: Final = 64
IDLE_S: Final = 10.0
READ_S: Final = 5.0


class HookRequest(msgspec.Struct, frozen=True):
    """A hook as its process was started. `json` is what the client told it."""

    client: str | None
    cwd: str
    project: str | None
    environ: dict[str, str]
    json: bytes
    process: str | None = None
    """The client's process."""


class Elsewhere(Exception):
    """The hook is about another workspace."""


class HookHandler(Protocol):
    def handle(self, request: HookRequest) -> str:
        """Record a hook. Returns what it prints. Raises `Elsewhere`, or what the hook is to say."""

    def maintain(self) -> None:
        """Called after each answer, and while no hook comes."""


class HookListener:
    """`open_handler` is called at the first hook: most workers never get one."""

    def __init__(self, root: str, open_handler: Callable[[], HookHandler]) -> None:
        self._root = os.path.realpath(root)
        self._path = ""
        self._open_handler = open_handler
        self._handler: HookHandler | None = None
        self._listener: socket | None = None
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
        # Loaded here, so that the worker answers its first request meanwhile.
        from perdure.hooks.relay import socket_path
        from perdure.platform import sockets

        self._path = socket_path(self._root)
        try:
            private_dir("hooks")
            fd = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            lock(fd)  # released by the end of the process
            listener = sockets.new_local()
            temporary = f"{self._path}.new"  # a hook that finds the name can connect
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            sockets.bind_private(listener, temporary)
            listener.listen(BACKLOG)
            listener.settimeout(IDLE_S)
            os.replace(temporary, self._path)
        except OSError as error:
            log.warning("hooks are not taken: %s", error)
            return
        self._listener = listener
        while not self._is_closed:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self._maintain()
                continue
            except OSError as error:
                if not self._is_closed:
                    log.warning("hooks are no longer taken: %s", error)
                return
            with connection:
                self._guard(partial(self._answer, connection))
            self._maintain()

    def _answer(self, connection: socket) -> None:
        from perdure.platform import sockets

        if sockets.peer_user(connection) not in (user_id(), None):
            return
        connection.settimeout(READ_S)
        request = _read(connection)
        try:
            if self._handler is None:
                self._handler = self._open_handler()
            reply = f"ok\0{self._handler.handle(request)}"
        except Elsewhere:
            reply = "elsewhere\0"
        except Exception as error:
            text = str(error) if isinstance(error, ValueError) else describe_error(error)
            log.warning("a hook of %s failed: %s", request.client, text)
            reply = f"failed\0{text}"
        connection.sendall(reply.encode(errors="replace"))

    def _maintain(self) -> None:
        if self._handler is not None:
            self._guard(self._handler.maintain)

    def _guard(self, work: Callable[[], None]) -> None:
        """One hook that fails must not end the thread."""
        try:
            work()
        except Exception as error:
            log.warning("hooks: %s: %s", type(error).__name__, error)


def _read(connection: socket) -> HookRequest:
    from perdure.hooks.relay import MOST_BYTES, PROCESS_VARIABLE

    pieces: list[bytes] = []
    size = 0
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise ValueError("a hook of more than 64 MB")
    header, _, told = b"".join(pieces).partition(b"\0\0")
    client, cwd, project, *variables = os.fsdecode(header).split("\0")
    environ = dict(variable.split("=", 1) for variable in variables if "=" in variable)
    process = environ.pop(PROCESS_VARIABLE, "") or None
    return HookRequest(_known(client), cwd, _known(project), environ, told, process)


def _known(text: str) -> str | None:
    from perdure.hooks.relay import UNKNOWN

    return text if text != UNKNOWN else None
