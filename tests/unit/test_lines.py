"""Bytes into frames: however the pipe cuts them, and whatever the other end sends."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.supervise.line_io import LineReader, Oversize

LIMIT = 40

lines = st.lists(
    st.one_of(
        st.binary(max_size=LIMIT).map(lambda b: b.replace(b"\n", b"")),
        st.binary(min_size=LIMIT - 2, max_size=3 * LIMIT).map(lambda b: b.replace(b"\n", b"")),
        st.sampled_from([b"", b"\r", b"  ", b"{}", b"{}\r"]),
    ),
    max_size=20,
)


def taken(reader: LineReader) -> list[bytes | tuple[int, bytes, bytes]]:
    return [
        (line.size, line.head, line.tail) if isinstance(line, Oversize) else line for line in reader.ready
    ]


def read(chunks: list[bytes], limit: int = LIMIT) -> LineReader:
    reader = LineReader(limit)
    for chunk in chunks:
        reader.feed(chunk)
    return reader


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(lines, st.lists(st.integers(min_value=0)))
def test_any_chunking_gives_the_same_frames(found: list[bytes], places: list[int]) -> None:
    data = b"\n".join(found)

    assert taken(read(cut(data, places))) == taken(read([data]))


@given(lines)
def test_every_line_within_the_bound_is_a_frame_and_every_other_keeps_its_two_ends(
    found: list[bytes],
) -> None:
    reader = read([b"".join(line + b"\n" for line in found)])

    expected: list[bytes | tuple[int, bytes, bytes]] = []
    for line in found:
        if len(line) > LIMIT:
            expected.append((len(line), line[:4096], line[-4096:]))
        elif line.strip():
            expected.append(line.rstrip(b"\r"))
    assert taken(reader) == expected


@given(lines, st.lists(st.integers(min_value=0)))
def test_what_was_read_goes_on_in_another_reader_as_if_nothing_had_happened(
    found: list[bytes], places: list[int]
) -> None:
    data = b"\n".join(line[:LIMIT] for line in found)
    for at in [place % (len(data) + 1) for place in places]:
        first = read([data[:at]])
        assert first.can_dump

        second = read([first.dump(), data[at:], b"\n"])

        assert taken(second) == taken(read([data, b"\n"]))


def test_carriage_returns_before_a_newline_are_dropped_however_often_a_line_is_handed_on() -> None:
    first = read([b"{}\r\r\n"])
    second = read([first.dump()])

    assert taken(second) == taken(first) == [b"{}"]


@pytest.mark.parametrize("rest", [b"x", b"x\n"])
def test_a_discarded_line_cannot_go_along(rest: bytes) -> None:
    reader = read([b"y" * LIMIT + rest])

    assert not reader.can_dump


def test_a_line_without_end_costs_no_memory() -> None:
    reader = LineReader(1000)
    chunk = b"z" * 65536
    tracemalloc.start()

    for _ in range(200):
        reader.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    reader.feed(b"tail}\n{}\n")

    assert peak < 1_000_000
    assert [type(line) for line in reader.ready] == [Oversize, bytes]
    oversize = reader.ready[0]
    assert isinstance(oversize, Oversize)
    assert oversize.size == 200 * 65536 + 5
    assert oversize.tail.endswith(b"ztail}")
