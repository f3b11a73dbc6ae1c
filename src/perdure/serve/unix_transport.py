"""Clients that speak stdio, on a socket of their owner's: the same sessions, one line per frame.

    {"session": ID or null, "workspace": …, "profile": …}   the first line: who comes back, or a new one
    {"session": ID, "known": true or false}   the answer; then frames in both directions
    {"delivered": [ID, …]}                    from the client's side: its client has these answers

Who is cut off comes back with its session and asks again what it had no answer to. An answer counts as delivered only
when the other end has said so (`confirms` in the first line and in its answer): until then it is kept, and a call that
is asked for again is not made again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw

from perdure.platform import sockets
from perdure.platform.permissions import user_id
from perdure.protocol.frames import (
    INVALID_REQUEST,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    decode_id,
    encode_error,
    salvage_id,
)
from perdure.protocol.msgspec_types import prepare_type
from perdure.protocol.tool_groups import PROFILES
from perdure.serve.deliveries import asked
from perdure.serve.exchange import Exchange
from perdure.serve.http_session import HttpSession
from perdure.serve.session_table import SessionTable, TooManySessions
from perdure.serve.store import StoreError
from perdure.supervise.line_io import LineReader, Oversize

READ_BYTES: Final = 1 << 18
FULL_BYTES: Final = 16 * 1024 * 1024  # beyond this only answers are written to a client that does not read
MOST_WAITING: Final = 256 * 1024 * 1024
MOST_UNCONFIRMED: Final = 256
CLOSE_S: Final = 1.0
DELIVERED: Final = b'{"delivered":'


class Hello(msgspec.Struct):
    session: str | None = None
    workspace: str = ""
    profile: str = ""
    confirms: bool = False
    opens: bool = False
    """Whether a folder that is not among the workspaces of `perdure serve` is to be opened as one."""
    process: str = ""
    """The process of the client (`platform/process_tree.py`)."""


class Welcome(msgspec.Struct):
    session: str
    known: bool
    confirms: bool = True


class Delivered(msgspec.Struct):
    delivered: list[Raw]


class Wire(Exchange):
    """An exchange that writes at once: on a line there is nothing to wait for."""

    def __init__(self, line: Line, request: Request | None) -> None:
        super().__init__(request.id if request is not None else None, None, can_stream=True)
        self.line = line

    def has_room(self, frame: bytes) -> bool:
        return self.line.has_room

    def put(self, frame: bytes) -> None:
        self.line.write(frame)

    def answer(self, frame: bytes) -> None:
        super().answer(frame)
        if self.id is not None and self.line.session is not None:
            self.line.wait_for_delivery(self.id, self.line.session.sent(self, frame))


class Line:
    """One attached client."""

    def __init__(self, sessions: SessionTable, writer: asyncio.StreamWriter, limit: int) -> None:
        self.session: HttpSession | None = None
        self._sessions = sessions
        self._writer = writer
        self._confirms = False
        self._undelivered: dict[RequestId, Callable[[bool], None]] = {}
        self.lines = LineReader(limit)

    @property
    def has_room(self) -> bool:
        waiting = self._writer.transport.get_write_buffer_size()
        return not self._writer.is_closing() and waiting < FULL_BYTES

    def wait_for_delivery(self, identity: RequestId, settled: Callable[[bool], None]) -> None:
        """`settled` hears whether the client has the answer that was just written."""
        if self._writer.is_closing():
            settled(False)
        elif self._confirms:
            self._undelivered[identity] = settled
            if len(self._undelivered) > MOST_UNCONFIRMED:
                oldest = next(iter(self._undelivered))
                self._undelivered.pop(oldest)(False)  # kept with the session, until it is confirmed after all
        else:
            settled(True)

    def write(self, frame: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame + b"\n")
            if self._writer.transport.get_write_buffer_size() > MOST_WAITING:
                self._writer.close()  # nobody reads; it can come back and ask again

    async def serve(self, reader: asyncio.StreamReader) -> None:
        standing = Wire(self, None)
        try:
            while data := await reader.read(READ_BYTES):
                self.lines.feed(data)
                while self.lines.ready:
                    line = self.lines.ready.popleft()
                    if self.session is None:
                        self.session = self._greeted(line)
                        self.session.listen(standing)
                    elif self.session.is_over:
                        raise _Unwelcome  # it comes back, and the session is taken up from its records
                    else:
                        self._take(self.session, line)
        except (ConnectionError, _Unwelcome):
            pass
        finally:
            if self.session is not None:
                self.session.stop_listening(standing)
                self.session.hang_up(self)
            self._writer.close()
            for settled in self._undelivered.values():
                settled(False)

    def _greeted(self, line: bytes | Oversize) -> HttpSession:
        try:
            hello = msgspec.json.decode(line if isinstance(line, bytes) else b"", type=prepare_type(Hello))
        except msgspec.MsgspecError:
            raise _Unwelcome from None
        workspace = self._sessions.workspace_of(hello.workspace)
        if workspace is None and hello.opens and os.path.isdir(hello.workspace):
            workspace = os.path.realpath(hello.workspace)  # on the user's own socket, who may open it anyway
        if workspace is None:
            raise self._refused("there is no such workspace here")
        if hello.profile not in ("", *PROFILES):
            raise self._refused(f"there is no profile {hello.profile[:64]}; there are {', '.join(PROFILES)}")
        try:
            found = self._sessions.named_as(hello.session) if hello.session else None
            session = found or self._sessions.open(workspace, profile=hello.profile)
        except TooManySessions:
            raise self._refused("too many sessions are open") from None
        except StoreError as error:
            raise self._refused(f"perdure serve cannot write its store ({error})") from None
        session.kernel.state.session.client_process = hello.process
        self._confirms = hello.confirms
        if session.tracing is not None:
            session.tracing.transport = {"network.transport": "unix"}
        self.write(msgspec.json.encode(Welcome(session.kernel.state.session.session_id, found is not None)))
        return session

    def _refused(self, reason: str) -> _Unwelcome:
        self.write(msgspec.json.encode({"refused": reason}))
        return _Unwelcome()

    def _take(self, session: HttpSession, line: bytes | Oversize) -> None:
        if isinstance(line, Oversize):
            identity = salvage_id(line.head, line.tail) if b'"method"' in line.head else None
            message = "the request is too large: send a large file in pieces (chunk_append)."
            self.write(encode_error(identity, INVALID_REQUEST, message))
            return
        if line.startswith(DELIVERED):
            self._delivered(session, line)
            return
        match decode(line):
            case Request() as request:
                session.post(line, Wire(self, request), asked(request.method, request.params))
            case Notification() | Response():
                session.post(line, None)
            case Malformed() as bad:
                self.write(encode_error(bad.id, bad.code, bad.reason))

    def _delivered(self, session: HttpSession, line: bytes) -> None:
        try:
            identities = msgspec.json.decode(line, type=prepare_type(Delivered)).delivered
        except msgspec.MsgspecError:
            return  # a client of its own making; what it has stays kept
        for raw in identities:
            identity = decode_id(raw)
            if identity is None:
                continue
            if (settled := self._undelivered.pop(identity, None)) is not None:
                settled(True)
            else:
                session.delivered(identity)


class _Unwelcome(Exception):
    """Not one of ours, or there is no room."""


class Listening:
    """The socket, and everybody on it."""

    def __init__(self, path: str, sessions: SessionTable, limit: int) -> None:
        self._path = path
        self._sessions = sessions
        self._limit = limit
        self._lines: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        listener = sockets.new_local()
        sockets.bind_private(listener, self._path)
        self._server = await asyncio.start_server(self._connected, sock=listener)

    async def close(self) -> None:
        """They find nobody here, and wait for our successor."""
        assert self._server is not None
        self._server.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        for writer in self._lines.values():
            writer.close()
        if self._lines:
            await asyncio.wait(self._lines, timeout=CLOSE_S)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: socket.socket = writer.get_extra_info("socket")
        if sockets.peer_user(peer) not in (user_id(), None):
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._lines[task] = writer
        try:
            await Line(self._sessions, writer, self._limit).serve(reader)
        finally:
            del self._lines[task]


async def listen(path: str, sessions: SessionTable, limit: int) -> Listening | None:
    """Answer on a socket that only its owner can open; None where another serving process has it."""
    if _is_answered(path):
        return None
    with suppress(FileNotFoundError):
        os.unlink(path)
    made = Listening(path, sessions, limit)
    await made.start()
    return made


def _is_answered(path: str) -> bool:
    with sockets.new_local() as other:
        try:
            sockets.connect(other, path)
        except OSError:
            return False
    return True
