"""The client of every measurement: one pipe out, one pipe in, no thread, no library."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROTOCOL = "2025-11-25"
ANSWER_SECONDS = 20.0


class Broken(Exception):
    """A server did not do what the measurement needs: it ended, kept silent, or answered with an error."""


class Client:
    """One stdio server under measurement, started by the constructor and ended by the context.

    `elapsed` is the time from the spawn to the last answer, in seconds: the clock is read when its line
    arrives, before it is parsed.
    """

    def __init__(self, argv: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._buffer = bytearray()
        self._next = 0
        self._name = Path(argv[0]).name
        self._spawned = time.perf_counter()
        self.arrived = self._spawned
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=cwd,
            env=dict(env),
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        self._readable = select.poll()
        self._readable.register(self._out, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def elapsed(self) -> float:
        return self.arrived - self._spawned

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process: by closing its input, then by asking, then by force."""
        process = self._process
        with suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        for end in (None, process.terminate, process.kill):
            if end is not None:
                end()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=3)
                break
        process.stdout.close()  # type: ignore[union-attr]
        self._stderr.close()

    # Frames

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Write a request and return its id, without waiting for the answer."""
        self._next += 1
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params or {}})
        return self._next

    def prepare(self, method: str, params: dict[str, Any]) -> bytes:
        """A request ready to be sent, under the next id."""
        self._next += 1
        return _frame({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})

    def post(self, request: bytes, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Send what was prepared last, and wait for its result."""
        self._send(request)
        return self.result(self._next, seconds)

    def receive(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The next answer, whatever request it belongs to. Requests of the server are refused on the way."""
        deadline = time.perf_counter() + seconds
        while True:
            line = self._line(deadline)
            self.arrived = time.perf_counter()
            frame: dict[str, Any] = json.loads(line)
            if "method" not in frame:
                return frame
            if "id" in frame:
                refusal = {"code": -32601, "message": "not offered"}
                self._write({"jsonrpc": "2.0", "id": frame["id"], "error": refusal})

    def request(
        self, method: str, params: dict[str, Any] | None = None, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        return self.result(self.send(method, params), seconds)

    def result(self, request: int, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The result of one request; answers to others are dropped."""
        while True:
            frame = self.receive(seconds)
            if frame.get("id") == request:
                return self._result_of(frame)

    # What MCP clients do

    def initialize(self) -> dict[str, Any]:
        result = self.request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "perdure-bench", "version": "1"},
            },
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def call(self, tool: str, arguments: dict[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        return self.request("tools/call", {"name": tool, "arguments": arguments}, seconds)

    def call_until_ready(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call until it succeeds: behind a proxy the backend may still be starting."""
        deadline = time.perf_counter() + ANSWER_SECONDS
        while True:
            try:
                return self.call(tool, arguments)
            except Broken:
                if time.perf_counter() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def pipelined(self, tool: str, arguments: dict[str, Any], *, calls: int, in_flight: int) -> float:
        """Seconds for a number of calls with so many of them in flight at any time."""
        params = {"name": tool, "arguments": arguments}
        sent = done = 0
        start = time.perf_counter()
        while done < calls:
            while sent < calls and sent - done < in_flight:
                self.send("tools/call", params)
                sent += 1
            self._result_of(self.receive())
            done += 1
        return self.arrived - start

    # Bytes

    def _write(self, frame: dict[str, Any]) -> None:
        self._send(_frame(frame))

    def _send(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._in, rest) :]
        except OSError as error:
            raise self._broken(f"takes no input ({error.strerror})")

    def _line(self, deadline: float) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            left = deadline - time.perf_counter()
            if left <= 0 or not self._readable.poll(left * 1000):
                raise self._broken("did not answer in time")
            chunk = os.read(self._out, 65536)
            if not chunk:
                raise self._broken("closed its output")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _result_of(self, frame: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] | None = frame.get("result")
        if result is None or result.get("isError"):
            raise Broken(f"{self._name} answered with an error: {json.dumps(frame)[:400]}")
        return result

    def _broken(self, what: str) -> Broken:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 400))
        tail = self._stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        return Broken("; ".join([f"{self._name} {what}", *(f"its stderr ends: {line}" for line in tail)]))


def _frame(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"
