"""The child process in which parsers run: it reads a request, checks the content, answers, and waits for the next.

    python -m perdure.validate.child MEMORY_MB SECONDS

Requests and replies are msgpack behind a four-byte length. Address space is limited once, processor time
before every request. It exits at the end of its input, so it does not outlive its parent.
"""

from __future__ import annotations

import gc
import sys
from typing import BinaryIO, Final

import msgspec

from perdure.platform import limits
from perdure.validate import check_as
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


def frame(body: bytes) -> bytes:
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


def _is_worn(memory: int) -> bool:
    return limits.resident_bytes() > memory * WORN


def main(arguments: list[str]) -> None:
    memory, seconds = int(arguments[0]) << 20, int(arguments[1])
    limits.limit_memory(memory)
    limits.disable_core_dumps()
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    decoder = msgspec.msgpack.Decoder(Request)
    outgoing.write(frame(b""))
    outgoing.flush()
    while (body := _read(incoming)) is not None:
        with limits.processor_time(seconds):
            report = _answer(decoder.decode(body))
        last = _is_worn(memory)
        outgoing.write(frame(msgspec.msgpack.encode(Reply(report, last))))
        outgoing.flush()
        if last:
            return
        gc.collect()


if __name__ == "__main__":
    main(sys.argv[1:])
