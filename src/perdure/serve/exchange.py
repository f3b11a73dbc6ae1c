"""One POST between its request and its answer: what is sent on its stream, and who waits for it.

An answer that comes first is sent as one JSON body. Only where something else comes before it, or it takes long,
does the response become an event stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from perdure.protocol.frames import RequestId

if TYPE_CHECKING:
    from perdure.serve.resumption import Stream


MOST_FRAMES: Final = 4096
MOST_BYTES: Final = 16 * 1024 * 1024


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


class Exchange:
    """Frames in the order they came; the last one is the answer. Where it is resumable, its `stream` can be left."""

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
        """Whether its client is known to be gone; it may not have been noticed yet."""
        self._woken: asyncio.Future[None] | None = None

    def has_room(self, frame: bytes) -> bool:
        """For anything but its answer, which is always taken."""
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
        """Whoever reads from now on; who read before sees by the number that it is no longer his."""
        self.readers += 1
        self.wake()
        return self.readers

    async def wait(self, seconds: float) -> None:
        """Until there is a frame, or the end, or the time is up."""
        if self.frames or self.is_answered or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        self._woken = own = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await own
        finally:
            timer.cancel()
            if self._woken is own:
                self._woken = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
