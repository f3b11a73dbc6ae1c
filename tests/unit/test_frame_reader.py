"""Frames off a pipe: whether more have come can be asked by anybody, at any time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from perdure.worker.pipe import FrameReader


@pytest.fixture
def pipe() -> Iterator[tuple[FrameReader, int]]:
    source, sink = os.pipe()
    yield FrameReader(source), sink
    os.close(source)
    os.close(sink)


def test_more_is_what_was_read_already_or_waits_in_the_pipe(pipe: tuple[FrameReader, int]) -> None:
    reader, sink = pipe
    assert not reader.has_more()
    os.write(sink, b"one\ntwo\n")
    assert reader.has_more()
    assert next(reader) == b"one"
    assert reader.has_more(), "the second was read with the first"
    assert next(reader) == b"two"
    assert not reader.has_more()
    os.write(sink, b"half a fra")
    assert reader.has_more()


def test_it_may_be_asked_while_another_thread_reads(pipe: tuple[FrameReader, int]) -> None:
    reader, sink = pipe
    asked: list[BaseException | bool] = []

    def ask() -> None:
        try:
            for _ in range(3000):
                asked.append(reader.has_more())
        except BaseException as error:
            asked.append(error)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for number in range(500):
        os.write(sink, b"%d\n" % number)
        assert next(reader) == b"%d" % number
    for asker in askers:
        asker.join()
    assert [found for found in asked if not isinstance(found, bool)] == []
    assert len(asked) == 9000
