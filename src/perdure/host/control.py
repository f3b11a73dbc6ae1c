"""How a running host is asked how it is: a socket of its owner's, answered in the event loop with one JSON line.

Nothing is read from whoever asks, so nobody can hand the host anything to work on: to connect is to ask. Answers
are bounded, a few askers are served at a time, and one who does not read is let go. The listener costs a
call nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from perdure.host import presence
from perdure.platform import sockets
from perdure.platform.descriptors import set_blocking
from perdure.supervise.line_io import Outbox

if TYPE_CHECKING:
    from socket import socket

    from perdure.kernel.core import Kernel
    from perdure.supervise.event_loop import EventLoop

MOST_ASKERS: Final = 8
BACKLOG: Final = 16
PATIENCE_S: Final = 2.0
FRESH_S: Final = 0.02


def listening() -> socket | None:
    """Bound anew under our own number: what a predecessor left under it answers no more."""
    try:
        path = os.path.join(presence.folder(), presence.socket_name(os.getpid()))
        presence.discard(path)
        listener = sockets.new_local()
        sockets.bind_private(listener, path)
        listener.listen(BACKLOG)
    except OSError:
        return None
    listener.setblocking(False)
    return listener


class Control:
    """The listening end. Where none can be opened the host runs all the same, and cannot be asked."""

    _loop: EventLoop

    def __init__(self, listener: socket) -> None:
        self.fd = listener.fileno()
        self._listener = listener
        self._askers: dict[int, tuple[Outbox, float]] = {}
        self._answer = b""
        self._answered_at = float("-inf")

    @classmethod
    def open(cls) -> Control | None:
        listener = listening()
        return cls(listener) if listener is not None else None

    def serve(self, loop: EventLoop, kernel: Kernel) -> None:
        self._loop = loop
        loop.add_reader(self.fd, lambda: self._accept(kernel))

    def _accept(self, kernel: Kernel) -> None:
        now = self._loop.time()
        for other, (_, until) in list(self._askers.items()):
            if until <= now:
                self._release(other)
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        fd = connection.detach()
        if len(self._askers) >= MOST_ASKERS:
            os.close(fd)
            return
        set_blocking(fd, False)
        outbox = Outbox(fd)
        self._askers[fd] = (outbox, now + PATIENCE_S)
        self._loop.add_writer(fd, lambda: self._flush(fd))
        try:
            outbox.put_line(self._line(kernel, now))
        except OSError:
            self._release(fd)
            return
        if not outbox.size:
            self._release(fd)

    def _line(self, kernel: Kernel, now: float) -> bytes:
        """Askers in a crowd share an answer, so that no number of them takes the session's time."""
        if now - self._answered_at > FRESH_S:
            import msgspec

            from perdure.surfaces.ops.report import report

            said: dict[str, object] = {"pid": os.getpid(), "version": kernel.version}
            try:
                said |= report(kernel, now)
            except Exception as error:  # a bug of ours here must not cost the session
                said["error"] = type(error).__name__
            self._answer, self._answered_at = msgspec.json.encode(said), now
        return self._answer

    def _flush(self, fd: int) -> None:
        outbox = self._askers[fd][0]
        try:
            outbox.flush()
        except OSError:
            self._release(fd)
            return
        if not outbox.size:
            self._release(fd)

    def _release(self, fd: int) -> None:
        self._loop.remove_writer(fd)
        del self._askers[fd]
        os.close(fd)

    def close(self) -> None:
        for fd in list(self._askers):
            self._release(fd)
        self._loop.remove_reader(self.fd)
        self._listener.close()
