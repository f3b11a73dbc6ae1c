"""Large strings on their way to the worker: as they arrive, in any pieces, into a slot that is free; or not."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.host.arena import Arena, Handed, Handing
from perdure.host.lines import LineReader
from perdure.model import frames, handover
from perdure.model.frames import Request
from perdure.model.handover import News, Note
from perdure.worker import arena as workers

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
LIMIT = 64 << 20


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    found = Arena.make()
    assert found is not None
    os.pwrite(found.fd, handover.MARK, 0)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def nobody_is_told(arena: Arena) -> None:
    arena.tell = lambda line: None


def frame_of(content: str, tool: str = "safe_write", **more: object) -> bytes:
    params = {"name": tool, "arguments": {"path": "f", "content": content, **more}}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(frame, separators=(",", ":")).encode()


def received(handing: Handing, stream: bytes, cuts: list[int]) -> list[tuple[bytes, Handed | None]]:
    """What becomes of each frame of a stream that arrives in these pieces."""
    reader, found = LineReader(LIMIT), []
    places = [0, *sorted(cuts), len(stream)]
    for start, end in pairwise(places):
        reader.feed(stream[start:end])
        if not reader.ready:
            handing.arriving(reader, stream[start:end])
        while reader.ready:
            line = reader.ready.popleft()
            assert isinstance(line, bytes)
            found.append((line, handing.taken(line)))
    return found


def sent_on(frame: bytes, message: frames.Message) -> frames.Pieces:
    """As the kernel would send it: under another id, with something added."""
    assert isinstance(message, Request)
    assert message.inside is not None
    params = {**message.inside.params, "_meta": frames.Raw(b'{"k":1}')}
    return frames.request_pieces(99, message.method, params)


CONTENTS = st.sampled_from(
    [
        "a line of text\n",
        "é𝄞 and plain words between them\n",
        '\\"quoted" and \\ slashed\n',
        "\x00\x1f\u2028 odd ones",
    ]
).map(lambda line: line * (400_000 // len(line)))


@given(CONTENTS, st.lists(st.integers(0, 900_000), max_size=12), st.integers(0, 3))
def test_what_the_worker_reads_is_what_the_client_sent(
    arena: Arena, content: str, cuts: list[int], before: int
) -> None:
    handing = Handing(lambda tool: arena if tool == "safe_write" else None)
    stream = b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n' * before + frame_of(content) + b"\n"
    *others, (frame, handed) = received(handing, stream, [cut for cut in cuts if cut < len(stream)])
    assert [one for _, one in others] == [None] * before
    assert handed is not None
    whole = frames.decode(frame)
    note = handover.decode(handed.note(arena, sent_on(frame, handed.message)) or b"")
    assert isinstance(note, Note)
    assert arena.free_slot() == 1
    message, read = workers.Arena(arena.fd).request(note)
    assert arena.free_slot() == 0
    assert isinstance(message, Request)
    assert read is not None
    assert (message.id, read.arguments["content"]) == (99, content)
    assert bytes(read.arguments["path"]) == b'"f"'  # type: ignore[arg-type]
    assert isinstance(whole, Request)
    assert bytes(read.params["_meta"]) == b'{"k":1}'


def test_a_slot_in_use_is_left_alone_and_without_a_free_one_the_pipe_serves(arena: Arena) -> None:
    handing = Handing(lambda tool: arena)
    content = "some words\n" * 40_000
    notes = []
    for number in range(handover.SLOTS + 1):
        ((frame, handed),) = received(handing, frame_of(f"{number}{content}") + b"\n", [])
        notes.append(handed.note(arena, sent_on(frame, handed.message)) if handed is not None else None)
    assert [note is not None for note in notes] == [True] * handover.SLOTS + [False]
    for number, line in enumerate(notes[:-1]):
        note = handover.decode(line or b"")
        assert isinstance(note, Note)
        _, read = workers.Arena(arena.fd).request(note)
        assert read is not None
        assert read.arguments["content"] == f"{number}{content}"


def test_a_frame_that_was_put_together_anew_is_known_by_its_arguments(arena: Arena) -> None:
    """As when a trace is followed: it is taken apart and gets a member more."""
    handing = Handing(lambda tool: arena)
    ((frame, handed),) = received(handing, frame_of("some words\n" * 40_000) + b"\n", [])
    assert handed is not None
    note = handover.decode(handed.note(arena, sent_on(frame, frames.decode(frame))) or b"")
    assert isinstance(note, Note)
    _, read = workers.Arena(arena.fd).request(note)
    assert read is not None
    assert read.arguments["content"] == "some words\n" * 40_000


def test_what_is_not_sent_leaves_its_slot_free(arena: Arena) -> None:
    handing = Handing(lambda tool: arena)
    for _ in range(5):
        ((frame, handed),) = received(handing, frame_of("some words\n" * 40_000) + b"\n", [])
        assert handed is not None
        assert handed.note(None, sent_on(frame, handed.message)) is None
        assert handed.note(arena, (frame,)) is None
        other = frames.decode(frame_of("other words\n" * 40_000))
        assert handed.note(arena, sent_on(frame, other)) is None
    assert arena.free_slot() == 0


@pytest.mark.parametrize(
    ("content", "tool"),
    [
        ("short", "safe_write"),
        ("some words\n" * 40_000, "fake__echo"),
        ("x" * (handover.SLOT_BYTES + 1), "safe_write"),
    ],
    ids=["small", "foreign", "too large"],
)
def test_other_calls_go_through_the_pipe(arena: Arena, content: str, tool: str) -> None:
    handing = Handing(lambda tool: arena if tool == "safe_write" else None)
    stream = frame_of(content, tool) + b"\n"
    cuts = [random.Random(3).randrange(len(stream)) for _ in range(9)]
    assert [handed for _, handed in received(handing, stream, cuts)] == [None]


def test_a_worker_that_did_not_say_so_gets_no_note() -> None:
    silent = Arena.make()
    assert silent is not None
    ((_, handed),) = received(Handing(lambda tool: silent), frame_of("some words\n" * 40_000) + b"\n", [])
    assert handed is None
    silent.close()


def test_a_worker_that_is_gone_gets_no_note_even_in_the_middle() -> None:
    gone = Arena.make()
    assert gone is not None
    os.pwrite(gone.fd, handover.MARK, 0)
    handing, reader = Handing(lambda tool: gone), LineReader(LIMIT)
    frame = frame_of("some words\n" * 60_000)
    for piece in (frame[:400_000], frame[400_000:]):
        reader.feed(piece)
        handing.arriving(reader, piece)
        gone.close()
    assert handing.taken(frame) is None


def test_no_frame_is_a_note_and_a_note_is_no_frame() -> None:
    for said in (
        Note(1, 7, 300_000, "content", frame_of("")),
        News(0, 2**62, 1 << 20, "rw.safe_write"),
        News(3, 7, 1 << 20, "safe_write", b'{"path":"a b"}'),
    ):
        line = handover.encode(said)
        assert handover.decode(line) == said
        assert not isinstance(frames.decode(line), Request)
    for other in (
        frame_of("@1 7 3 content {}"),
        b"@4 7 3 content {}",
        b"@1 7 99999999 content {}",
        b"+1 7 99999999 safe_write",
        b"@1 7 3 {}",
        b"+1 7 3",
        b"@",
    ):
        assert handover.decode(other) is None


class Taker:
    """Who takes a text while it arrives."""

    def __init__(self, news: News) -> None:
        self.before = news.before
        self.sizes: list[int] = []
        self.data: memoryview | None = None
        self.text: str | None = None
        self.is_closed = False

    def reach(self, beginning: memoryview) -> None:
        self.sizes.append(len(beginning))
        self.data = beginning

    def end(self, data: memoryview) -> None:
        self.reach(data)

    def becomes(self, text: str) -> None:
        self.text = text

    def close(self) -> None:
        self.is_closed = True


def follow(arena: Arena) -> tuple[workers.Arena, list[Taker], Handing]:
    """Both ends of an arena; each line that the host tells is heard by the worker at once."""
    takers: list[Taker] = []
    reading = workers.Arena(arena.fd)

    def takes(news: News) -> Taker | None:
        if news.tool != "safe_write":
            return None
        takers.append(Taker(news))
        return takers[-1]

    def tell(line: bytes) -> None:
        news = handover.decode(line)
        assert isinstance(news, News)
        reading.hear(news)

    reading.takes = takes
    arena.tell = tell
    return reading, takers, Handing(lambda tool: arena)


def read_by(reading: workers.Arena, arena: Arena, frame: bytes, handed: Handed | None) -> workers.Handed:
    assert handed is not None
    note = handover.decode(handed.note(arena, sent_on(frame, handed.message)) or b"")
    assert isinstance(note, Note)
    _, read = reading.request(note)
    assert read is not None
    return read


LONG = 'é𝄞 "quoted" \\ and plain words between them\n' * 60_000


@given(st.lists(st.integers(0, 4_000_000), max_size=30))
def test_a_text_is_taken_while_it_arrives_from_where_it_stays(arena: Arena, cuts: list[int]) -> None:
    reading, takers, handing = follow(arena)
    stream = frame_of(LONG) + b"\n"
    cuts = [400_000, *(cut for cut in cuts if cut < len(stream))]
    ((frame, handed),) = received(handing, stream, cuts)
    read = read_by(reading, arena, frame, handed)
    (taker,) = takers
    assert taker.before == b'{"path":"f"}'
    assert taker.sizes == sorted(taker.sizes)
    assert all(size % workers.WHOLE == 0 for size in taker.sizes[:-1])
    assert taker.data == LONG.encode()
    assert taker.text is read.arguments["content"]
    assert (taker.is_closed, arena.free_slot()) == (False, 1)
    read.close()
    assert (taker.is_closed, arena.free_slot()) == (True, 0)


def test_a_text_that_never_became_a_call_is_dropped_by_the_next(arena: Arena) -> None:
    reading, takers, handing = follow(arena)
    reader, frame = LineReader(LIMIT), frame_of(LONG)
    for piece in (frame[:400_000], frame[400_000:2_000_000]):
        reader.feed(piece)
        handing.arriving(reader, piece)
    received(handing, frame[:300_000] + b"\n", [])  # not JSON: the line has ended too early
    assert not takers[0].is_closed
    ((frame, handed),) = received(handing, frame_of("x" + LONG) + b"\n", [500_000, 2_500_000])
    read = read_by(reading, arena, frame, handed)
    assert takers[0].is_closed
    assert takers[0].text is None
    assert takers[1].text == "x" + LONG
    read.close()


def test_a_call_that_cannot_be_read_gives_its_slot_back(arena: Arena) -> None:
    reading, takers, handing = follow(arena)
    ((frame, handed),) = received(handing, frame_of(LONG) + b"\n", [500_000, 2_500_000])
    assert handed is not None
    note = handover.decode(handed.note(arena, sent_on(frame, handed.message)) or b"")
    assert isinstance(note, Note)
    message, read = reading.request(note._replace(frame=b"{"))
    assert isinstance(message, frames.Malformed)
    assert read is None
    assert takers[0].is_closed
    assert arena.free_slot() == 0


@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        ({"path": "a/b", "mode": "create"}, {"path": "a/b", "mode": "create"}),
        ({"path": 'q"\\', "x": {"y": [1, "},"]}}, {"path": 'q"\\', "x": {"y": [1, "},"]}}),
        ({}, None),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_first_news_has_what_stands_before_the_text(
    arena: Arena, arguments: dict[str, object], before: object, separators: tuple[str, str]
) -> None:
    _, takers, handing = follow(arena)
    params = {"name": "safe_write", "arguments": {**arguments, "content": LONG, "path2": "z"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    received(handing, json.dumps(call, separators=separators).encode() + b"\n", [500_000, 2_500_000])
    (taker,) = takers
    assert (json.loads(taker.before) if taker.before else None) == before


def test_news_of_a_tool_that_takes_nothing_is_nothing(arena: Arena) -> None:
    reading, takers, handing = follow(arena)
    ((frame, handed),) = received(handing, frame_of(LONG, "validate") + b"\n", [1_000_000])
    assert read_by(reading, arena, frame, handed).arguments["content"] == LONG
    assert takers == []


def test_only_memory_of_the_host_is_claimed(monkeypatch: pytest.MonkeyPatch, arena: Arena) -> None:
    """A variable that somebody set, or a file that has a name, is nothing to read from."""
    for told in ("", "x", "-1", "9999", "0"):
        monkeypatch.setenv(handover.VARIABLE, told)
        assert workers.Arena.claim() is None
        assert handover.VARIABLE not in os.environ
    monkeypatch.setenv(handover.VARIABLE, str(arena.fd))
    assert workers.Arena.claim() is not None
