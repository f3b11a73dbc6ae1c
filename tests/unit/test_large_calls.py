"""A large call is taken apart in one pass: to the same as level by level, or not at all."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from perdure.model import frames, large_calls
from perdure.model.envelope import ToolError
from perdure.model.frames import Inside, Malformed, Request
from perdure.present.normalize import strict_object

SPACE = st.sampled_from(["", "", "", " ", "\n", "\t ", "  "])
NAMES = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "name", "arguments", "_meta", "path", "a", "é", "x y"]
)
VALUES = st.recursive(
    st.sampled_from(
        ["1", "null", "true", '"2.0"', '"tools/call"', '"a}, {\\"b\\":"', '" , "', '"é\\n"', '""', "{}"]
    ),
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=3).map(lambda pairs: _object(pairs, "")),
    max_leaves=4,
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=4)


def _object(pairs: list[tuple[str, str]], space: str) -> str:
    inner = f"{space},{space}".join(
        f"{json.dumps(name, ensure_ascii=False)}{space}:{space}{value}" for name, value in pairs
    )
    return f"{{{space}{inner}{space}}}"


@st.composite
def calls(draw: st.DrawFn) -> bytes:
    """Calls, and what is nearly one: members twice, others missing, in any order, with space anywhere."""
    space = draw(SPACE)
    arguments = _object(draw(PAIRS), draw(SPACE))
    params = [
        ("name", '"t"'),
        ("arguments", arguments),
        *draw(st.lists(st.tuples(NAMES, VALUES), max_size=1)),
    ]
    outer = [
        ("jsonrpc", '"2.0"'),
        ("id", "7"),
        ("method", '"tools/call"'),
        ("params", _object(draw(st.permutations(params)), draw(SPACE))),
        *draw(st.lists(st.tuples(NAMES, VALUES), max_size=1)),
    ]
    return (space + _object(draw(st.permutations(outer)), space) + space).encode()


@given(calls())
@example(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":22}}}')
@example(
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"arguments":{}}}'
)
def test_it_says_the_same_as_level_by_level(frame: bytes) -> None:
    parts = large_calls.taken_apart(frame)
    if parts is None:
        return
    assert _plain(parts.members) == _plain(frames.members(frame))
    params = frames.members(parts.members["params"])
    assert _plain(parts.params) == _plain(params)
    assert _plain(parts.arguments) == _plain(frames.members(params["arguments"]))


def _plain(found: dict[str, Any]) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in found.items()}


def frame_of(content: str, separators: tuple[str, str] = (",", ":"), **more: Any) -> bytes:
    params = {"name": "safe_write", "arguments": {"path": "f", "content": content}, **more}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(frame, separators=separators).encode()


LARGE = "a line\n" * 10_000


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_large_call_is_taken_apart(separators: tuple[str, str]) -> None:
    message = frames.decode(frame_of(LARGE, separators, _meta={"progressToken": 3}))
    assert isinstance(message, Request)
    assert isinstance(message.inside, Inside)
    assert json.loads(bytes(message.inside.arguments["content"])) == LARGE
    assert message.params is not None
    assert json.loads(bytes(message.params))["_meta"] == {"progressToken": 3}


def test_a_member_that_is_there_twice_is_found_however_large_the_call() -> None:
    frame = frame_of(LARGE)
    twice = frame.replace(b'"id":1', b'"id":1,"id":1')
    assert isinstance(frames.decode(twice), Malformed)
    inner = frames.decode(frame.replace(b'"path":"f"', b'"path":"f","path":"g"'))
    assert isinstance(inner, Request)
    assert inner.inside is None


@pytest.mark.parametrize(
    "bad",
    [rb"\ud800", rb"\ud800 and more", rb"\udc00", rb"\ud800\u0041", rb"\uD800\uDBFF", b"\xff", b"\xc3("],
)
@pytest.mark.parametrize("place", [b"@", b"#", b"%"])
def test_bad_text_is_found_wherever_it_stands(bad: bytes, place: bytes) -> None:
    frame = frame_of(LARGE + "@", _meta={"key": ["#"], "%": 1})
    assert isinstance(frames.decode(frame), Request)
    assert isinstance(frames.decode(frame.replace(place, bad)), Malformed)


@pytest.mark.parametrize("bad", [rb'"\ud800 "', b'"\xff"', rb'["\udc00"]', b'{"a": "\xc3"}'])
def test_who_reads_the_arguments_refuses_bad_text(bad: bytes) -> None:
    with pytest.raises(ToolError) as refused:
        strict_object({"content": Raw(bad)})
    assert refused.value.envelope.context["reason"] == "bad_text"


def test_a_frame_is_forgotten_at_once() -> None:
    """Not when the collector comes by: many large ones would be held until then."""
    gc.disable()
    try:
        tracemalloc.start()
        for _ in range(20):
            assert isinstance(frames.decode(frame_of("x" * 1_000_000)), Request)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 3_000_000
