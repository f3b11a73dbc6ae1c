"""The fake server's pipes: lines of JSON in, whole lines of JSON out."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

Object = dict[str, Any]
RequestId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
UNSUPPORTED_VERSION: Final = -32022
RESOURCE_NOT_FOUND: Final = -32002

_STDOUT: Final = 1


class Refusal(Exception):
    """A request answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def encode(frame: object) -> bytes:
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()


class Wire:
    """Standard input and output. `lock` makes each frame whole; a thread that holds it silences the server."""

    def __init__(self, *, noise: bool) -> None:
        self.lock = threading.RLock()
        self._noise = noise
        if noise:
            self.write(b"fake server starting\n\n{not json\n")

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        with self.lock:
            try:
                while rest:
                    rest = rest[os.write(_STDOUT, rest) :]
            except BrokenPipeError:
                os._exit(0)  # the client is gone: nothing is left to answer

    def send(self, frame: Object) -> None:
        line = encode(frame) + b"\n"
        self.write(b"noise before\n" + line + b"noise after\n" if self._noise else line)

    def notify(self, method: str, params: Object | None = None) -> None:
        frame: Object = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)

    def ask(self, identity: RequestId, method: str, params: Object | None) -> None:
        frame: Object = {"jsonrpc": "2.0", "id": identity, "method": method}
        if params is not None:
            frame["params"] = params
        self.send(frame)

    def answer(self, identity: RequestId, result: Object) -> None:
        self.send({"jsonrpc": "2.0", "id": identity, "result": result})

    def refuse(self, identity: RequestId | None, refusal: Refusal) -> None:
        error: Object = {"code": refusal.code, "message": refusal.message}
        if refusal.data is not None:
            error["data"] = refusal.data
        self.send({"jsonrpc": "2.0", "id": identity, "error": error})

    def frames(self) -> Iterator[Object]:
        """Every object the client sends until it closes; what is not one is refused here."""
        while line := sys.stdin.buffer.readline():
            if not line.strip():
                continue
            try:
                frame = json.loads(line)
            except (ValueError, RecursionError):
                self.refuse(None, Refusal(PARSE_ERROR, "Parse error"))
                continue
            if isinstance(frame, dict):
                yield frame
            else:
                self.refuse(None, Refusal(INVALID_REQUEST, "Invalid request"))
