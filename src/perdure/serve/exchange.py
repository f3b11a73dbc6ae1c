"""An HTTP request between its arrival and its answer: the frames that wait for its response, and its event stream.

A client of the handshake era may leave a stream and resume it with `Last-Event-ID`. The id of an event is
`STREAM.NUMBER`, and the name of a stream contains the id of the request that it answers:

    id: 35-9f86d081.3      the third event of the stream of request 5

The last events of a stream are kept, up to a number of bytes.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from perdure.protocol.frames import RequestId

MOST_FRAMES: Final = 4096
MOST_BYTES: Final = 16 * 1024 * 1024
RETRY_MS: Final = 1000
MOST_KEPT_BYTES: Final = 128 * 1024
MOST_LEFT: Final = 32
STANDING: Final = "standing"


class FrameQueue:
    """Frames that wait for a reader, bounded in number and in bytes. An empty queue has room for any one frame."""

    def __init__(self, most_frames: int = MOST_FRAMES, most_bytes: int = MOST_BYTES) -> None:
        self.size = 0
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._frames: deque[bytes] = deque()

    def has_room(self, frame: bytes) -> bool:
        return not self._frames or (
            len(self._frames) < self._most_frames and self.size + len(frame) <= self._most_bytes
        )

    def append(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.size += len(frame)

    def popleft(self) -> bytes:
        frame = self._frames.popleft()
        self.size -= len(frame)
        return frame

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, index: int) -> bytes:
        return self._frames[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._frames)


class Stream:
    """The numbered events of one stream. The latest are kept."""

    def __init__(self, identity: RequestId | None) -> None:
        request = msgspec.json.encode(identity).hex() if identity is not None else STANDING
        self.name = f"{request}-{os.urandom(6).hex()}"
        self.number = 0
        self._sent: deque[bytes] = deque()
        self._size = 0

    def prime(self) -> bytes:
        """An event without data, so that the client has an id to resume from."""
        return f"id: {self.name}.{self.number}\nretry: {RETRY_MS}\ndata: \n\n".encode()

    def event(self, frame: bytes) -> bytes:
        self.number += 1
        event = f"id: {self.name}.{self.number}\nevent: message\ndata: ".encode() + frame + b"\n\n"
        self._sent.append(event)
        self._size += len(event)
        while self._size > MOST_KEPT_BYTES:
            self._size -= len(self._sent.popleft())
        return event

    def after(self, number: int) -> list[bytes] | None:
        """The events after this one; None where some of them are no longer kept."""
        missing = self.number - number
        if not 0 <= missing <= len(self._sent):
            return None
        return list(self._sent)[len(self._sent) - missing :]


class Exchange:
    """Frames in the order of their arrival; the answer is the last one. A resumable exchange gets a `stream`."""

    def __init__(
        self,
        identity: RequestId | None,
        token: RequestId | None,
        *,
        can_stream: bool,
        is_resumable: bool = False,
        stream: Stream | None = None,
    ) -> None:
        self.id = identity
        self.token = token
        self.can_stream = can_stream
        self.is_resumable = is_resumable
        self.stream = stream
        self.frames = FrameQueue()
        self.is_answered = False
        self.is_closed = False
        self.readers = 0
        self.is_left: Callable[[], bool] = lambda: False
        """Whether the connection of its client has ended; the response may not have noticed yet."""
        self._woken: asyncio.Future[None] | None = None

    def has_room(self, frame: bytes) -> bool:
        """For any frame but the answer, which is always accepted."""
        return not self.is_closed and self.frames.has_room(frame)

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.wake()

    def answer(self, frame: bytes) -> None:
        self.is_answered = True
        self.put(frame)

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self.wake()

    def read(self) -> int:
        """Become the reader. The previous reader sees the changed number and stops."""
        self.readers += 1
        self.wake()
        return self.readers

    async def wait(self, seconds: float) -> None:
        """Until there is a frame, or the exchange ends, or the time is up."""
        if self.frames or self.is_answered or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        self._woken = woken = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await woken
        finally:
            timer.cancel()
            if self._woken is woken:
                self._woken = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


class LeftStreams:
    """Exchanges whose client went away, and those that ended last: the client may not have read all of their events."""

    def __init__(self) -> None:
        self._left: dict[str, Exchange] = {}

    def add(self, exchange: Exchange) -> None:
        assert exchange.stream is not None
        self._left[exchange.stream.name] = exchange
        while len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    def take(self, name: str) -> Exchange | None:
        return self._left.pop(name, None)

    @property
    def waiting(self) -> list[Exchange]:
        """Those without an answer."""
        return [exchange for exchange in self._left.values() if not exchange.is_answered]
