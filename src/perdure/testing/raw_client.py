"""A synchronous JSON-RPC client over a process's pipes that keeps every frame, for tests of either era.

    with RawClient([sys.executable, "-m", "perdure.testing.fake_server"]) as client:
        client.initialize()
        assert client.call("echo", {"text": "hi"})["result"]["content"][0]["text"] == "hi"

Nothing is validated and nothing is dropped: `answers[id]` holds every response to an id, so that a test can
assert exactly one, and what is no JSON-RPC message at all is in `noise` and `strays`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

Object = dict[str, Any]
RequestId = int | str
OnRequest = Callable[[str, Object], Object | Exception | None]

HANDSHAKE: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
CLIENT_INFO: Final[Object] = {"name": "raw-client", "version": "1.0.0"}
CAPABILITIES: Final[Object] = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}

_METHOD_NOT_FOUND: Final = -32601
_INTERNAL_ERROR: Final = -32603


class Ended(ConnectionError):
    """The process closed its output while an answer was awaited."""


class ClientError(Exception):
    """Returned or raised by `on_request`: the server's request is answered with this error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def refuse_requests(method: str, params: Object) -> Exception:
    """What `on_request` is until it is set."""
    return ClientError(_METHOD_NOT_FOUND, f"no answer to {method}")


def envelope(
    params: Mapping[str, Any] | None = None,
    *,
    version: str = MODERN,
    capabilities: Mapping[str, Any] | None = None,
    log_level: str | None = None,
) -> Object:
    """Params with the `_meta` that 2026-07-28 wants on every request; keys already there win."""
    given = dict(params or {})
    meta: Object = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
        "io.modelcontextprotocol/clientCapabilities": dict(
            CAPABILITIES if capabilities is None else capabilities
        ),
    }
    if log_level is not None:
        meta["io.modelcontextprotocol/logLevel"] = log_level
    return {**given, "_meta": {**meta, **given.get("_meta", {})}}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class RawClient:
    """One process and everything it said. What waits raises TimeoutError, or Ended after the last word."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.frames: list[Object] = []
        self.answers: dict[RequestId, list[Object]] = {}
        self.notifications: list[Object] = []
        self.requests: list[Object] = []
        self.strays: list[Any] = []
        self.noise: list[bytes] = []
        self.on_request: OnRequest = refuse_requests
        self.ended = False
        self._next_id = 0
        self._arrived = threading.Condition()
        self._writing = threading.Lock()
        self._last_stderr = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        """What the process wrote to standard error so far."""
        if self._stderr.closed:
            return self._last_stderr
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    # Sending

    def send_bytes(self, data: bytes) -> None:
        """Write as is: no line end is added."""
        assert self.process.stdin is not None
        with self._writing:
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, frame: object) -> None:
        self.send_bytes(json.dumps(frame, separators=(",", ":")).encode() + b"\n")

    def notify(self, method: str, params: Object | None = None) -> None:
        frame: Object = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)

    def start(self, method: str, params: Object | None = None, id: RequestId | None = None) -> RequestId:
        """Send a request and return its id without waiting. Minted ids count from 1."""
        if id is None:
            with self._arrived:
                self._next_id += 1
                id = self._next_id
        frame: Object = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)
        return id

    def cancel(self, id: RequestId, reason: str = "test") -> None:
        self.notify("notifications/cancelled", {"requestId": id, "reason": reason})

    # Waiting

    def wait(self, id: RequestId, timeout: float = 10) -> Object:
        """The first response to the id, whole."""
        self.wait_until(lambda: bool(self.answers.get(id)), timeout, f"answer to {id!r}")
        return self.answers[id][0]

    def wait_notification(
        self,
        method: str,
        timeout: float = 10,
        *,
        count: int = 1,
        where: Callable[[Object], bool] | None = None,
    ) -> Object:
        """The `count`-th notification of that method since the start whose params satisfy `where`, whole."""

        def found() -> list[Object]:
            named = [frame for frame in self.notifications if frame["method"] == method]
            return [frame for frame in named if where is None or where(frame.get("params") or {})]

        self.wait_until(lambda: len(found()) >= count, timeout, f"notification {method} number {count}")
        return found()[count - 1]

    def wait_request(self, method: str, timeout: float = 10, *, count: int = 1) -> Object:
        """The `count`-th request of that method that the server sent us, whole."""

        def found() -> list[Object]:
            return [frame for frame in self.requests if frame["method"] == method]

        self.wait_until(lambda: len(found()) >= count, timeout, f"request {method} number {count}")
        return found()[count - 1]

    def wait_end(self, timeout: float = 10) -> int:
        """Wait until the process is gone; its exit code."""
        return self.process.wait(timeout)

    def wait_until(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait until a frame makes the condition true."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while not condition():
                if self.ended:
                    raise Ended(f"the process ended before {what}; stderr: {self.stderr[-2000:]}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no {what} within {timeout} s; stderr: {self.stderr[-2000:]}")
                self._arrived.wait(left)

    # Speaking MCP

    def request(
        self, method: str, params: Object | None = None, id: RequestId | None = None, timeout: float = 10
    ) -> Object:
        """Send a request and return the whole response."""
        return self.wait(self.start(method, params, id), timeout)

    def initialize(
        self,
        version: str = HANDSHAKE,
        capabilities: Mapping[str, Any] | None = None,
        timeout: float = 10,
        client_info: Mapping[str, Any] = CLIENT_INFO,
    ) -> Object:
        """The handshake; the result of `initialize`. Raises ConnectionError if it is refused."""
        params = {
            "protocolVersion": version,
            "capabilities": dict(CAPABILITIES if capabilities is None else capabilities),
            "clientInfo": dict(client_info),
        }
        response = self.request("initialize", params, timeout=timeout)
        if "result" not in response:
            raise ConnectionError(f"initialize was refused: {response.get('error')}")
        self.notify("notifications/initialized")
        result: Object = response["result"]
        return result

    def call(
        self, tool: str, arguments: Object | None = None, timeout: float = 10, *, meta: Object | None = None
    ) -> Object:
        """tools/call in the handshake era; the whole response."""
        return self.wait(self.start_call(tool, arguments, meta=meta), timeout)

    def start_call(
        self, tool: str, arguments: Object | None = None, *, meta: Object | None = None
    ) -> RequestId:
        params: Object = {"name": tool, "arguments": arguments or {}}
        if meta is not None:
            params["_meta"] = meta
        return self.start("tools/call", params)

    def modern(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        id: RequestId | None = None,
        timeout: float = 10,
    ) -> Object:
        """A 2026-07-28 request with its envelope; the whole response."""
        return self.wait(self.start(method, envelope(params), id), timeout)

    def modern_call(
        self, tool: str, arguments: Object | None = None, timeout: float = 10, **members: Any
    ) -> Object:
        """tools/call in the 2026-07-28 era; `members` are further params, as `inputResponses`."""
        params = {"name": tool, "arguments": arguments or {}, **members}
        return self.modern("tools/call", params, timeout=timeout)

    def listen(self, notifications: Object, id: RequestId | None = None, timeout: float = 10) -> RequestId:
        """Open a subscriptions/listen stream and wait for its acknowledgement; its id."""
        opened = self.start("subscriptions/listen", envelope({"notifications": notifications}), id)

        def ours(params: Object) -> bool:
            return bool(params.get("_meta", {}).get("io.modelcontextprotocol/subscriptionId") == opened)

        def settled() -> bool:
            frames = self.notifications
            acknowledged = "notifications/subscriptions/acknowledged"
            acks = [frame["params"] for frame in frames if frame["method"] == acknowledged]
            return any(ours(params) for params in acks) or opened in self.answers

        self.wait_until(settled, timeout, f"acknowledgement of {opened!r}")
        if opened in self.answers:
            raise ConnectionError(f"listen was answered at once: {self.answers[opened][0]}")
        return opened

    # Ending

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self, timeout: float = 10) -> int:
        """Close the process's input and wait; its exit code. A process that stays is killed: TimeoutError."""
        self.close_stdin()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the process outlived its input by {timeout} s") from None
        self._release()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_stdin()
        self._release()

    def _release(self) -> None:
        # An orphan of the process may still hold the pipe open; the reader is a daemon and may wait for it.
        self._reader.join(1)
        self._last_stderr = self.stderr
        self._stderr.close()
        if not self._reader.is_alive() and self.process.stdout is not None:
            self.process.stdout.close()

    # Reading

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._arrived:
                self._file(line)
                self._arrived.notify_all()
        with self._arrived:
            self.ended = True
            self._arrived.notify_all()

    def _file(self, line: bytes) -> None:
        try:
            frame = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            self.noise.append(line)
            return
        if not isinstance(frame, dict):
            self.strays.append(frame)
            return
        self.frames.append(frame)
        if isinstance(frame.get("method"), str):
            if "id" not in frame:
                self.notifications.append(frame)
            else:
                self.requests.append(frame)
                threading.Thread(target=self._respond, args=(frame,), daemon=True).start()
        elif type(frame.get("id")) in (int, str) and ("result" in frame or "error" in frame):
            # The exact type: 7, 7.0 and true are one key to Python and three ids to a client.
            self.answers.setdefault(frame["id"], []).append(frame)
        else:
            self.strays.append(frame)

    def _respond(self, frame: Object) -> None:
        """Answer the server's request with what `on_request` gives; None leaves it unanswered."""
        try:
            given: Object | Exception | None = self.on_request(frame["method"], frame.get("params") or {})
        except Exception as error:  # the callable's failure is the client's answer
            given = error
        response: Object = {"jsonrpc": "2.0", "id": frame["id"]}
        match given:
            case None:
                return
            case ClientError():
                response["error"] = {"code": given.code, "message": str(given), "data": given.data}
            case Exception():
                response["error"] = {"code": _INTERNAL_ERROR, "message": str(given)}
            case _:
                response["result"] = given
        with contextlib.suppress(OSError, ValueError):  # the process may be gone before its answer
            self.send(response)
