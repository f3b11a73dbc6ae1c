"""Checks that cannot harm the one who asks: parsers run in child processes with limits, replaced when lost.

    with Checker(timeout_s=5.0, memory_mb=512) as checker:
        report = checker.check(content, format_hint=None, target_path="a.py")

A parser that takes too long is killed and one that dies is replaced; the answer is then that nothing can be
said. A child starts at the first check that needs one. Few work at once, but a check that takes long gives its turn
to another, so that some slow ones do not hold up all. Small JSON and TOML without deep nesting is checked
right here: both parsers take linear time on it and cannot recurse far.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

import perdure
from perdure.platform.descriptors import set_blocking
from perdure.platform.limits import is_processor_timeout
from perdure.platform.polling import READABLE, WRITABLE, wait
from perdure.protocol.msgspec_types import prepare_type
from perdure.validate.checking import check_as
from perdure.validate.child import LENGTH_BYTES, Reply, Request, framed
from perdure.validate.detect import detect
from perdure.validate.report import UNKNOWN, Report, report_unchecked

START_S: Final = 30.0
SMALL: Final = 65536
DEPTH: Final = 50
PIPE_BYTES: Final = 65536
MOMENT_S: Final = 0.3
SLOW: Final = 4
_DIRECT: Final = ("json", "toml")
# Long dotted keys cost the TOML parser the square of their length.
_DOTTED: Final = re.compile(r"(?:[^.\n]*\.){100}")
_BRACKET: Final = re.compile(r"[\[\]{}]")
_PACKAGES: Final = str(Path(perdure.__file__).parent.parent)


class Lost(Exception):
    """The child ended, or was ended, without an answer; `late` if for want of time."""

    def __init__(self, late: bool) -> None:
        self.late = late


class Checker:
    """`check` in child processes; any number of threads may use one."""

    def __init__(
        self,
        timeout_s: float = 5.0,
        memory_mb: int = 512,
        children: int = 2,
        processor_s: int | None = None,
    ) -> None:
        """`processor_s` of computing are enough for one check, however busy the machine is: else as `timeout_s`."""
        self._timeout_s = timeout_s
        self._processor_s = math.ceil(timeout_s) if processor_s is None else processor_s
        self._memory_mb = memory_mb
        self._quick = threading.BoundedSemaphore(children)
        self._slow = threading.BoundedSemaphore(SLOW)
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
        if form == UNKNOWN or (form in _DIRECT and _is_harmless(content)):
            return check_as(form, content)
        turn = _Turn(self._quick, self._slow)
        try:
            return self._ask(Request(form, content.encode("utf-8", "replace")), turn)
        finally:
            turn.end()

    def close(self) -> None:
        """End the children that wait; those at work end with their answer."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _ask(self, request: Request, turn: _Turn) -> Report:
        try:
            child = self._take()
            reply = child.ask(request, self._timeout_s, turn.give_way)
        except Lost as lost:
            reason = "validation took too long" if lost.late else "the parser failed on this content"
            return report_unchecked(request.form, reason)
        self._give_back(child, reply.last)
        return reply.report

    def _take(self) -> _Child:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Child(self._memory_mb, self._processor_s)

    def _give_back(self, child: _Child, worn: bool) -> None:
        with self._lock:
            if not (worn or self._closed):
                self._idle.append(child)
                return
        child.end()


class _Turn:
    """The right to have a child at work."""

    def __init__(self, quick: threading.BoundedSemaphore, slow: threading.BoundedSemaphore) -> None:
        self._slow = slow
        self._held = quick
        self._held.acquire()

    def give_way(self) -> None:
        """Go on as one of the slow, unless there are too many of them."""
        if self._slow.acquire(blocking=False):
            self._held.release()
            self._held = self._slow

    def end(self) -> None:
        self._held.release()


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
        self._within(START_S, b"", lambda: None)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Request, timeout_s: float, late: Callable[[], None]) -> Reply:
        """`late` is called once if there is no answer after a moment."""
        outgoing = framed(msgspec.msgpack.encode(request))
        return msgspec.msgpack.decode(self._within(timeout_s, outgoing, late), type=prepare_type(Reply))

    def end(self) -> None:
        """Close its input, by which it ends; it waits for nothing else."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _within(self, seconds: float, outgoing: bytes, slow: Callable[[], None]) -> bytes:
        """Send, then read one frame; a child that fails at it or is late is gone when this raises."""
        deadline = time.monotonic() + seconds
        try:
            self._send(outgoing, deadline)
            if not wait(self._stdout, READABLE, min(MOMENT_S, seconds)):
                slow()
            size = int.from_bytes(self._receive(LENGTH_BYTES, deadline), "big")
            return self._receive(size, deadline)
        except (OSError, EOFError, TimeoutError) as error:
            self._process.kill()
            self.end()
            late = isinstance(error, TimeoutError) or is_processor_timeout(self._process.returncode)
            raise Lost(late)

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


def _is_harmless(content: str) -> bool:
    if len(content) > SMALL or _DOTTED.search(content):
        return False
    depth = 0
    for mark in _BRACKET.findall(content):
        depth += 1 if mark in "[{" else -1
        if depth > DEPTH:
            return False
    return True
