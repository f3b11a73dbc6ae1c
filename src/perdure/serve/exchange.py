"""One POST between its request and its answer: what is sent on its stream, and who waits for it.

An answer that comes first is sent as one JSON body. Only where something else comes before it, or it takes long,
does the response become an event stream.
"""

from __future__ import annotations

import asyncio
from collections import deque

from perdure.model.frames import RequestId


class Exchange:
    """Frames in the order they came; the last one is the answer."""

    def __init__(self, identity: RequestId | None, token: RequestId | None, *, can_stream: bool) -> None:
        self.id = identity
        self.token = token
        self.can_stream = can_stream
        self.frames: deque[bytes] = deque()
        self.is_answered = False
        self.is_closed = False
        self._woken: asyncio.Future[None] | None = None

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)
        self._wake()

    def answer(self, frame: bytes) -> None:
        self.is_answered = True
        self.put(frame)

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Until there is a frame, or the end, or the time is up."""
        if self.frames or self.is_closed:
            return
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = loop.call_later(seconds, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()
            self._woken = None

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
