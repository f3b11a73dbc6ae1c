"""The sockets: who connects must say what he wants in time and in measure, and it is known whether he got his answer.

| too | answer |
|---|---|
| many connections | 503, at once |
| slow with a head, or with what is left of a body after its answer | closed |
| large a head | 431 |
| long without reading | closed, by the system |
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.host.serve_options import ServeLimits
from perdure.platform import signals, sockets
from perdure.platform.limits import file_limit
from perdure.protocol.frames import INVALID_REQUEST, encode_error

CONNECTION: Final = "perdure.connection"
UNREAD_S: Final = 60
SPARE_FILES: Final = 256
PHRASES: Final = {400: b"Bad Request", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}

Settled = Callable[[bool], None]


def protocol(limits: ServeLimits) -> type[H11Protocol]:
    """For uvicorn, which makes one of them for each connection."""
    files = file_limit()
    most = limits.connections
    if files is not None:
        most = max(16, min(most, files - SPARE_FILES))  # our servers and stores need some as well

    class Bounded(PatientProtocol):
        head_s = limits.header_s
        most_connections = most

    return Bounded


class PatientProtocol(H11Protocol):
    head_s = 10.0
    most_connections = 1000

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._impatience: asyncio.TimerHandle | None = None
        self._waiting: list[Settled] = []
        self._is_lost = False

    # --- how long, how many, how much --------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None:
            sockets.close_if_unread(found, UNREAD_S)
        if len(self.connections) > self.most_connections:
            self._refuse(503, "too many connections", b"retry-after: 5\r\n")
            return
        self._be_patient()

    def data_received(self, data: bytes) -> None:
        if self._is_between():
            self._be_patient()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            if self._has_taken_all():  # a client that pipelines may not have: its answers are settled later
                self._settle(arrived=True)
            self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
            if self._impatience is not None:
                self._impatience.cancel()
                self._impatience = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        self._is_lost = True
        self._settle(arrived=exc is None and _has_arrived(self.transport))
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        hint = getattr(sys.exception(), "error_status_hint", 400)
        if hint == 431:
            self._refuse(431, "the head of the request is too large")
        else:
            self._refuse(400, "this is not HTTP")

    def _is_between(self) -> bool:
        """No request is being worked on: what comes is a head, or the rest of a body nobody wants."""
        return self.cycle is None or self.cycle.response_complete

    def _be_patient(self) -> None:
        if self._impatience is None:
            self._impatience = self.loop.call_later(self.head_s, self._too_slow)

    def _too_slow(self) -> None:
        self._impatience = None
        if self._is_between() and not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, reason: str, more: bytes = b"") -> None:
        body = encode_error(None, INVALID_REQUEST, reason)
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n%scontent-length: %d\r\n\r\n%s"
            % (status, PHRASES[status], more, len(body), body)
        )
        self.transport.close()

    # --- whether an answer arrived -----------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """Whether the client's end is known already."""
        return self._is_lost

    def _has_taken_all(self) -> bool:
        return not self.transport.get_write_buffer_size() and _has_arrived(self.transport)

    def when_settled(self, settled: Settled) -> None:
        """Called once it is known whether what was written so far reached the client's machine."""
        if self._is_lost:
            settled(False)
        else:
            self._waiting.append(settled)

    def _settle(self, *, arrived: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled(arrived)


def _has_arrived(transport: Any) -> bool:
    """Whether the other side has taken everything: a client that left early answers with a reset instead."""
    found = transport.get_extra_info("socket")
    try:
        if found is None or found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        return sockets.unsent_bytes(found) == 0
    except OSError:
        return False


class Server(uvicorn.Server):
    """Ends in good order at a signal, and says so by its exit code. After `most_s` it ends, whatever holds it."""

    def __init__(
        self, config: uvicorn.Config, ending: Callable[[], None], rolling: Callable[[], None], most_s: float
    ) -> None:
        super().__init__(config)
        self._ending = ending
        self._rolling = rolling
        self._most_s = most_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signals.TERMINATE, signals.INTERRUPT):
            signals.handle_in_loop(loop, number, self.handle_exit, number, None)
        signals.handle_in_loop(loop, signals.RELOAD, self._roll, os.isatty(0))
        yield

    def _roll(self, had_terminal: bool) -> None:
        """The same signal says that the terminal was closed: then nobody wants us any more."""
        if had_terminal and not os.isatty(0):
            self.handle_exit(signals.RELOAD, None)
        else:
            self._rolling()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        signals.end_after(self._most_s)
        self._ending()
