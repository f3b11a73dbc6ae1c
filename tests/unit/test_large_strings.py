"""A large string is found in its frame and read in pieces: to the same text as in one, or not at all."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.model import frames, large_calls, large_strings
from perdure.model.frames import Inside, Malformed, Request

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from(
            ["plain words all along ", "\n", '"', "\\", "\\n", "é", "𝄞", "\u2028", "\x00", "中文"]
        ),
    ),
    max_size=60,
).map(lambda parts: "".join(part.encode(errors="ignore").decode() for part in parts))
BROKEN = st.sampled_from(
    [
        b'"',
        b"\\",
        rb"\q",
        rb"\u12",
        rb"\ud800",
        rb"\udc00",
        rb"\ud83d\u0041",
        b"\x1f",
        b"\t",
        b"\xff",
        b"\xc3",
    ]
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that a text has many, and edges so near that a string reaches beyond them."""
    monkeypatch.setattr(large_strings, "PIECE", 40)
    monkeypatch.setattr(large_strings, "NEAR", 36)
    monkeypatch.setattr(large_strings, "EDGE", 200)


def inner(text: str, *, ascii_only: bool) -> bytes:
    return json.dumps(text, ensure_ascii=ascii_only).encode()[1:-1]


def read(string: bytes) -> bytes:
    return b"".join(large_strings.pieces(string, 0, len(string)))


@given(TEXTS, st.booleans())
@example("𝄞" * 30, True)
@example("\\" * 200, False)
@example("plain words all along 𝄞é" * 9, True)
def test_pieces_say_what_the_whole_says(text: str, ascii_only: bool) -> None:
    assert read(inner(text, ascii_only=ascii_only)) == text.encode()


@given(TEXTS, BROKEN, TEXTS)
@example("plain words all along " * 4, rb"\ud83d", "plain words all along " * 4)
def test_what_is_no_string_is_no_string_in_pieces(before: str, broken: bytes, after: str) -> None:
    string = inner(before, ascii_only=False) + broken + inner(after, ascii_only=False)
    try:
        whole = json.loads(b'"' + string + b'"')
        whole.encode()
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            read(string)
    else:
        assert read(string) == whole.encode()


def call(content: bytes, arguments: str = '"path":"a/b","content":%,"mode":"create"') -> bytes:
    params = '"name":"safe_write","arguments":{' + arguments + "}"
    frame = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params}}}}}'
    return frame.encode().replace(b"%", b'"' + content + b'"')


SHAPES = st.sampled_from(
    [
        '"path":"a","content":%',
        '"content":%,"path":"a"',
        '"content" : % , "path" : "a" ',
        '"path":"a","content":%,"content":"b"',
        '"path":"a","path":"b","content":%',
        '"path":"a","content":%,"x":"\\ud800"',
        '"path":"\\"content\\":","content":%',
        '"edits":[%],"path":"a"',
        '"edits":{"content":%}',
        '"content":%,,"path":"a"',
        '"content":%%',
    ]
)


@given(TEXTS, SHAPES, st.one_of(st.just(b""), BROKEN))
@example("plain words all along " * 40, '"path":"a","content":%', b"")
def test_a_call_that_was_split_says_the_same_as_one_that_was_not(
    text: str, shape: str, broken: bytes
) -> None:
    content = inner(text * 12, ascii_only=False) + broken + inner(text, ascii_only=True)
    frame = call(content, shape)
    split = large_calls.split(frame)
    whole = frames.decode(frame)
    if split is None:
        return
    try:
        said = b"".join(large_strings.pieces(frame, split.start + 1, split.end - 1))
    except ValueError:
        return
    assert isinstance(whole, Request)
    found = frames.decode_split(frame, split.parts)
    assert isinstance(found, Request)
    assert (found.id, found.method, found.extra) == (whole.id, whole.method, whole.extra)
    assert found.params is not None
    assert whole.params is not None
    assert bytes(found.params) == bytes(whole.params)
    assert isinstance(found.inside, Inside)
    params = frames.members(whole.params)
    arguments = frames.members(params["arguments"])
    assert _plain(found.inside.params) == _plain(params)
    assert _plain(found.inside.arguments) == _plain(arguments)
    assert json.loads(bytes(arguments[split.name])).encode() == said


def _plain(found: dict[str, object]) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in found.items()}  # type: ignore[call-overload]


def test_an_ordinary_large_call_is_split() -> None:
    split = large_calls.split(call(inner("a line\n" * 400, ascii_only=True)))
    assert split is not None
    assert (split.name, bytes(split.parts.arguments["mode"])) == ("content", b'"create"')


@pytest.mark.parametrize("member", ['"path":"a","path":"b"', '"content":""', '"x":"\\ud800"', '"y":[1,}'])
def test_a_frame_that_is_wrong_beside_its_string_is_not_split(member: str) -> None:
    frame = call(inner("a line\n" * 400, ascii_only=True), f'"content":%,{member}')
    assert large_calls.split(frame) is None
    assert isinstance(frames.decode(frame), Request | Malformed)
