"""The process in which parsers run: it takes a request, checks, answers, and waits for the next.

    python -m perdure.validate.child MEMORY_MB SECONDS

Requests and replies are msgpack behind a four-byte length. Address space is limited once, processor time
before every request. It ends when its input does, so nothing outlives the one that asked.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from perdure.validate.checking import check_as
from perdure.validate.report import Report, report_unchecked

LENGTH_BYTES: Final = 4
# A child that once needed much keeps it; a fresh one is cheaper than a failure of the next request.
WORN: Final = 0.5


class Request(msgspec.Struct, frozen=True):
    form: str
    content: bytes


class Reply(msgspec.Struct, frozen=True):
    report: Report
    last: bool


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    body = stream.read(size)
    return body if len(body) == size else None


def _answer(request: Request) -> Report:
    try:
        return check_as(request.form, request.content.decode("utf-8", "replace"))
    except MemoryError:
        return report_unchecked(request.form, "validation needed too much memory")
    except RecursionError:
        return report_unchecked(request.form, "nested too deeply to be checked")


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """End this process by SIGPROF after so much computing. A timer counts from now: what the system takes for all that a
    process has computed is counted in ticks, and after a minute of it seconds ahead of what it tells the process."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _is_worn(memory: int) -> bool:
    return _resident() > memory * WORN


def _resident() -> int:
    """Bytes in memory now. Linux hands the peak of the one who started a process on to it, so not the peak."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()


def main(arguments: list[str]) -> None:
    memory, seconds = int(arguments[0]) << 20, int(arguments[1])
    # macOS refuses any limit on address space, and a process cannot raise one that is lower already.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # whatever it was started with
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    decoder = msgspec.msgpack.Decoder(Request)
    outgoing.write(framed(b""))
    outgoing.flush()
    while (body := _read(incoming)) is not None:
        with _limited(seconds):
            report = _answer(decoder.decode(body))
        last = _is_worn(memory)
        outgoing.write(framed(msgspec.msgpack.encode(Reply(report, last))))
        outgoing.flush()
        if last:
            return
        gc.collect()


if __name__ == "__main__":
    main(sys.argv[1:])
