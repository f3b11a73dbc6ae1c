"""Run checks in child processes with limits on time and memory: no input can hang or end the caller.

    with Checker(timeout_s=5.0, memory_mb=512) as checker:
        report = checker.check(content, format_hint=None, target_path="a.py")

A child that takes too long is killed and one that dies is replaced; the report then says that the content was not
checked. A child starts at the first check that needs one and serves many.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

import perdure
from perdure.platform.descriptors import set_blocking
from perdure.platform.limits import is_processor_timeout
from perdure.platform.polling import READABLE, WRITABLE, wait
from perdure.protocol.msgspec_types import prepare_type
from perdure.validate import check_as
from perdure.validate.child import LENGTH_BYTES, Reply, Request, frame
from perdure.validate.detect import detect
from perdure.validate.report import UNKNOWN, Report, report_unchecked

START_S: Final = 30.0
PIPE_BYTES: Final = 65536
CHILDREN: Final = 4
_PACKAGES: Final = str(Path(perdure.__file__).parent.parent)


class ChildLost(Exception):
    """The child ended, or was killed, without an answer."""

    def __init__(self, is_timeout: bool) -> None:
        super().__init__()
        self.is_timeout = is_timeout


class Checker:
    """A pool of child processes that check content; any number of threads may share one."""

    def __init__(
        self,
        timeout_s: float = 5.0,
        memory_mb: int = 512,
        children: int = CHILDREN,
        processor_s: int | None = None,
    ) -> None:
        """`processor_s` limits the computing for one check, however busy the machine is; default: as `timeout_s`."""
        self._timeout_s = timeout_s
        self._processor_s = math.ceil(timeout_s) if processor_s is None else processor_s
        self._memory_mb = memory_mb
        self._slots = threading.BoundedSemaphore(children)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(
        self, content: str, *, format_hint: str | None = None, target_path: str | None = None
    ) -> Report:
        form = detect(content, format_hint=format_hint, target_path=target_path)
        if form == UNKNOWN:
            return check_as(form, content)
        with self._slots:
            return self._ask(Request(form, content.encode("utf-8", "replace")))

    def close(self) -> None:
        """End the idle children; a busy one ends with its answer."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _ask(self, request: Request) -> Report:
        try:
            child = self._take()
            reply = child.ask(request, self._timeout_s)
        except ChildLost as lost:
            reason = "validation took too long" if lost.is_timeout else "the parser failed on this content"
            return report_unchecked(request.form, reason)
        self._give_back(child, reply.last)
        return reply.report

    def _take(self) -> _Child:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Child(self._memory_mb, self._processor_s)

    def _give_back(self, child: _Child, is_last: bool) -> None:
        with self._lock:
            if not (is_last or self._closed):
                self._idle.append(child)
                return
        child.end()


class _Child:
    """One child process and its two pipes; lost for good after the first failure."""

    def __init__(self, memory_mb: int, seconds: int) -> None:
        command = [sys.executable, "-P", "-m", "perdure.validate.child", str(memory_mb), str(seconds)]
        path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            cwd="/",
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        set_blocking(self._stdin, False)
        self._exchange(b"", START_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, timeout_s: float) -> Reply:
        reply = self._exchange(frame(msgspec.msgpack.encode(request)), timeout_s)
        return msgspec.msgpack.decode(reply, type=prepare_type(Reply))

    def end(self) -> None:
        """Close its input, at whose end it exits."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _exchange(self, outgoing: bytes, timeout_s: float) -> bytes:
        """Send, then read one frame. Raises ChildLost, after the child was killed."""
        deadline = time.monotonic() + timeout_s
        try:
            self._send(outgoing, deadline)
            size = int.from_bytes(self._receive(LENGTH_BYTES, deadline), "big")
            return self._receive(size, deadline)
        except (OSError, EOFError, TimeoutError) as error:
            self._process.kill()
            self.end()
            raise ChildLost(isinstance(error, TimeoutError) or is_processor_timeout(self._process.returncode))

    def _send(self, outgoing: bytes, deadline: float) -> None:
        rest = memoryview(outgoing)
        while rest:
            _wait_until(self._stdin, WRITABLE, deadline)
            rest = rest[os.write(self._stdin, rest[:PIPE_BYTES]) :]

    def _receive(self, size: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        while size:
            _wait_until(self._stdout, READABLE, deadline)
            part = os.read(self._stdout, size)
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _wait_until(descriptor: int, event: int, deadline: float) -> None:
    if not wait(descriptor, event, max(0.0, deadline - time.monotonic())):
        raise TimeoutError
