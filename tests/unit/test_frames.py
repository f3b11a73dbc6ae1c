"""Frames: whatever bytes come in are read in one way only, and what is not ours passes on unchanged."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.protocol.frames import (
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    members,
    salvage_id,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IDS = st.integers(-(2**53), 2**53) | TEXT
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
NAMES = TEXT.filter(bool)
RESERVED = {"jsonrpc", "id", "method", "params", "result", "error"}
EXTRA = st.dictionaries(NAMES.filter(lambda n: n not in RESERVED), VALUES, max_size=3)


def dump(value: Any, ascii_only: bool = False, spaced: bool = False) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode()


@given(IDS, NAMES, OBJECTS, EXTRA, st.booleans(), st.booleans())
def test_a_request_keeps_its_id_its_raw_params_and_what_it_does_not_know(
    identity: Any, method: str, params: Any, extra: Any, ascii_only: bool, spaced: bool
) -> None:
    raw = dump(params, ascii_only, spaced)
    frame = dump(
        {"jsonrpc": "2.0", "id": identity, "method": method, "params": params, **extra}, ascii_only, spaced
    )
    found = decode(frame)
    assert isinstance(found, Request)
    assert (found.id, type(found.id), found.method) == (identity, type(identity), method)
    assert found.params is not None
    assert bytes(found.params) == raw
    again = json.loads(encode_request(found.id, found.method, found.params, found.extra))
    assert again == json.loads(frame)


@given(IDS, OBJECTS, EXTRA)
def test_a_result_goes_round_without_a_change(identity: Any, result: Any, extra: Any) -> None:
    frame = dump({"jsonrpc": "2.0", "id": identity, "result": result, **extra})
    found = decode(frame)
    assert isinstance(found, Response)
    assert found.id is not None
    assert found.result is not None
    assert bytes(found.result) == dump(result)
    assert json.loads(encode_result(found.id, found.result, found.extra)) == json.loads(frame)


@given(NAMES, OBJECTS)
def test_a_notification_goes_round_without_a_change(method: str, params: Any) -> None:
    frame = dump({"jsonrpc": "2.0", "method": method, "params": params})
    found = decode(frame)
    assert isinstance(found, Notification)
    assert encode_notification(found.method, found.params) == dump(
        {"jsonrpc": "2.0", "method": method, "params": params}
    ) or json.loads(encode_notification(found.method, found.params)) == json.loads(frame)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_raise(data: bytes) -> None:
    decode(data)
    salvage_id(data)


@given(OBJECTS, NAMES, VALUES, VALUES, st.booleans())
def test_a_member_named_twice_at_the_root_is_never_read_in_one_of_two_ways(
    rest: Any, name: str, one: Any, two: Any, spaced: bool
) -> None:
    rest.pop(name, None)
    parts = [dump(k) + b":" + dump(v, spaced=spaced) for k, v in rest.items()]
    parts += [dump(name) + b":" + dump(one), dump(name, ascii_only=True) + b":" + dump(two)]
    separator = b" , " if spaced else b","
    body = b"{" + separator.join(parts) + b"}"
    with pytest.raises(ValueError):
        members(body)
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m",' + separator.join(parts[-2:]) + b"}"
    if name not in RESERVED:
        assert isinstance(decode(frame), Malformed)


@given(OBJECTS, st.booleans(), st.booleans())
def test_an_object_without_a_duplicate_is_never_refused(value: Any, ascii_only: bool, spaced: bool) -> None:
    found = members(dump(value, ascii_only, spaced))
    assert {key: json.loads(bytes(raw)) for key, raw in found.items()} == value


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(b"7", 7), (b'"7"', "7"), (b"0", 0), (b'""', ""), (b"-1", -1)],
)
def test_an_id_keeps_its_type(raw: bytes, expected: Any) -> None:
    found = decode(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % raw)
    assert isinstance(found, Request)
    assert found.id == expected
    assert type(found.id) is type(expected)


@pytest.mark.parametrize("raw", [b"null", b"1.5", b"true", b"[]", b"{}", b"1e3", b"NaN", b"01"])
def test_anything_else_is_no_id(raw: bytes) -> None:
    found = decode(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % raw)
    assert isinstance(found, Malformed)
    assert found.id is None


def test_a_response_to_nobody_is_read_as_such() -> None:
    found = decode(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}')
    assert isinstance(found, Response)
    assert found.id is None


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"   ",
        b"null",
        b"5",
        b'"text"',
        b'[{"jsonrpc":"2.0","id":1,"method":"m"}]',
        b"[]",
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","x":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","x":"\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","x":"\\udc00\\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}x',
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","result":{}}',
    ],
)
def test_what_is_not_one_clear_message_is_malformed(frame: bytes) -> None:
    assert isinstance(decode(frame), Malformed)


def test_a_pair_of_surrogates_is_a_character() -> None:
    assert isinstance(decode(b'{"jsonrpc":"2.0","id":1,"method":"m","x":"\\ud83d\\ude00"}'), Request)


@given(IDS, st.integers(0, 40))
def test_a_truncated_request_still_names_its_sender(identity: Any, cut: int) -> None:
    head = (
        b'{"jsonrpc":"2.0","id":'
        + dump(identity)
        + b',"method":"tools/call","params":{"content":"'
        + b"x" * cut
    )
    assert salvage_id(head) == identity
    found = decode(head)
    assert isinstance(found, Malformed)
    assert found.id == identity
    assert not found.is_response


@given(IDS)
def test_an_id_at_the_end_is_found_and_one_inside_is_not(identity: Any) -> None:
    tail = b'xxx"}},"id":' + dump(identity) + b"}"
    assert salvage_id(b'{"jsonrpc":"2.0","method":"m","params":{"a":"', tail) == identity
    inside = b'{"jsonrpc":"2.0","method":"m","params":{"id":' + dump(identity) + b',"a":"'
    assert salvage_id(inside, b'xxx"}}') is None


def test_an_id_in_an_oversize_tail_that_is_really_nested_does_not_lie() -> None:
    assert salvage_id(b'{"jsonrpc":"2.0","method":"m","params":{"a":"', b'","id":5}}') is None


def test_an_error_has_its_data_only_where_there_is_some() -> None:
    assert json.loads(encode_error(1, -5, "no")) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -5, "message": "no"},
    }
    assert json.loads(encode_error(None, -5, "no", {"a": 1}))["error"]["data"] == {"a": 1}


def test_a_frame_nested_too_deeply_is_malformed_not_fatal() -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    assert isinstance(
        decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + deep + b"}}"), Malformed | Request
    )
    assert isinstance(
        decode(b'{"jsonrpc": "2.0", "id":1,"method":"m","params":{"a":' + deep + b"}}"), Malformed | Request
    )


LARGE = "a line\n" * 10_000


def large_call(content: str, *, spaced: bool = False, **more: Any) -> bytes:
    params = {"name": "safe_write", "arguments": {"path": "f", "content": content}, **more}
    return dump({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, spaced=spaced)


@pytest.mark.parametrize("spaced", [False, True])
def test_a_large_call_is_read_like_a_small_one(spaced: bool) -> None:
    message = decode(large_call(LARGE, spaced=spaced, _meta={"progressToken": 3}))
    assert isinstance(message, Request)
    assert message.params is not None
    params = json.loads(bytes(message.params))
    assert (params["arguments"]["content"], params["_meta"]) == (LARGE, {"progressToken": 3})


def test_a_member_named_twice_is_found_however_large_the_call() -> None:
    frame = large_call(LARGE)
    assert isinstance(decode(frame.replace(b'"id":1', b'"id":1,"id":1')), Malformed)
    message = decode(frame.replace(b'"path":"f"', b'"path":"f","path":"g"'))
    assert isinstance(message, Request)
    assert message.params is not None
    with pytest.raises(ValueError, match="path"):
        members(members(message.params)["arguments"])


@pytest.mark.parametrize(
    "bad",
    [rb"\ud800", rb"\ud800 and more", rb"\udc00", rb"\ud800\u0041", rb"\uD800\uDBFF", b"\xff", b"\xc3("],
)
@pytest.mark.parametrize("place", [b"@", b"#", b"%"])
def test_bad_text_is_found_wherever_it_stands(bad: bytes, place: bytes) -> None:
    frame = large_call(LARGE + "@", _meta={"key": ["#"], "%": 1})
    assert isinstance(decode(frame), Request)
    assert isinstance(decode(frame.replace(place, bad)), Malformed)


def test_a_large_frame_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        tracemalloc.start()
        for _ in range(20):
            assert isinstance(decode(large_call("x" * 1_000_000)), Request)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 3_000_000


def test_a_very_long_integer_is_carried_whatever_the_spaces_around_it() -> None:
    for space in (b"", b" "):
        frame = b'{"jsonrpc":"2.0","id":1,"result":{"n":' + space + b"7" * 5000 + b"}" + space + b"}"
        assert isinstance(decode(frame), Response)
