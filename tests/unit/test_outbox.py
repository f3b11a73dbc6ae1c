"""What waits for a pipe keeps its order and loses nothing, however little the pipe takes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.supervise.line_io import Outbox


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def take(self, most: int = 1 << 20) -> bytes:
        try:
            return os.read(self.reading, most)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for fd in (self.reading, self.writing):
            try:
                os.close(fd)
            except OSError:
                pass


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    found = Pipe()
    yield found
    found.close()


def test_what_the_pipe_takes_is_written_at_once(pipe: Pipe) -> None:
    outbox = Outbox(pipe.writing)

    outbox.put(b"one\n")
    outbox.put(b"two\n")

    assert outbox.size == 0
    assert outbox.dump() == b""
    assert pipe.take() == b"one\ntwo\n"


@given(st.lists(st.integers(1, 100_000), max_size=5), st.integers(5_000, 100_000))
def test_the_bytes_arrive_in_order_and_the_size_is_what_is_left(sizes: list[int], bite: int) -> None:
    pipe = Pipe()
    outbox = Outbox(pipe.writing)
    wanted = b"".join(bytes([number]) * size for number, size in enumerate(sizes))
    arrived = b""

    for number, size in enumerate(sizes):
        outbox.put(bytes([number]) * size)
        arrived += pipe.take(bite)
    while len(arrived) < len(wanted):
        outbox.flush()
        assert outbox.size == len(outbox.dump())
        arrived += pipe.take(bite)
        assert wanted.startswith(arrived)
    pipe.close()

    assert arrived == wanted
    assert outbox.size == 0


def test_what_waited_goes_on_in_another_outbox_behind_nothing_and_before_everything(pipe: Pipe) -> None:
    first = Outbox(pipe.writing)
    first.put(b"a" * 100_000)
    first.put(b"b" * 10)
    assert first.size > 0

    second = Outbox(pipe.writing, first.dump())
    assert second.size == first.size
    second.put(b"c")
    arrived = b""
    while second.size:
        arrived += pipe.take()
        second.flush()
    arrived += pipe.take()

    assert arrived == b"a" * 100_000 + b"b" * 10 + b"c"


def test_a_new_outbox_writes_nothing_before_it_is_asked(pipe: Pipe) -> None:
    os.close(pipe.reading)

    outbox = Outbox(pipe.writing, b"nobody reads this")

    assert outbox.size == 17
    with pytest.raises(BrokenPipeError):
        outbox.flush()


def test_a_broken_pipe_is_said_when_something_is_put(pipe: Pipe) -> None:
    os.close(pipe.reading)
    outbox = Outbox(pipe.writing)

    with pytest.raises(BrokenPipeError):
        outbox.put(b"x")
