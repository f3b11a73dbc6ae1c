"""One running request: cancelled or answered, never both; and the view of it that a handler gets."""

from __future__ import annotations

import threading

import msgspec

from perdure.protocol.eras import LOG_LEVELS, NOTICE
from perdure.protocol.frames import RequestId, encode_notification
from perdure.protocol.tools import View
from perdure.worker.pipe import FrameWriter


class _Cancelled:
    """A flag that the reading thread sets once. No thread waits for it, so it needs no lock."""

    __slots__ = ("_is_set",)

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


class Running:
    """A request between its arrival and its one answer."""

    def __init__(self, identity: RequestId, out: FrameWriter) -> None:
        self.id = identity
        self.cancelled = _Cancelled()
        self._out = out
        self._lock = threading.Lock()
        self._is_answered = False

    def cancel(self) -> None:
        """From here on nothing more is said about this request."""
        with self._lock:
            self.cancelled.set()

    def answer(self, frame: bytes) -> None:
        with self._lock:
            if not self._is_answered and not self.cancelled.is_set():
                self._is_answered = True
                self._out.write(frame)

    def notify(self, method: str, params: dict[str, object]) -> None:
        with self._lock:
            if not self._is_answered and not self.cancelled.is_set():
                self._out.write(encode_notification(method, msgspec.json.encode(params)))


class Context:
    """A call as its handler sees it (`perdure.protocol.calls.Call`)."""

    force = False

    def __init__(
        self,
        running: Running,
        *,
        tool: str,
        view: View,
        invocation_key: str | None,
        age_s: float,
        client: str,
        session: str,
        process: str | None,
        progress_token: int | str | None,
        log_level: str | None,
    ) -> None:
        self.tool = tool
        self.view = view
        self.invocation_key = invocation_key
        self.age_s = age_s
        self.client = client
        self.session = session
        self.process = process
        self.cancelled = running.cancelled
        self._running = running
        self._token = progress_token
        self._log_level = log_level
        self._reached: float | None = None

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        # A token of 0 is a token. Progress that does not advance is not progress (MCP: it must increase).
        if self._token is None or (self._reached is not None and value <= self._reached):
            return
        self._reached = value
        params: dict[str, object] = {"progressToken": self._token, "progress": value}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self._running.notify("notifications/progress", params)

    def log(self, level: str, message: str) -> None:
        if level == "alert":
            self._running.notify(NOTICE, {"text": message})
        if self._log_level is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(self._log_level):
            params: dict[str, object] = {"level": level, "logger": f"perdure.{self.tool}", "data": message}
            self._running.notify("notifications/message", params)
