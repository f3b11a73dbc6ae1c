"""JSON-RPC frames: decoded only as far as the host must look, carried on as raw bytes.

    one line of bytes ──decode()──▶ Request | Notification | Response | Malformed

Params and results stay `Raw`; members that JSON-RPC does not name are kept in `extra` and sent on.
A frame that could be read in two ways (duplicate members, invalid UTF-8, lone surrogates) is
`Malformed`: the host and the server behind it must never disagree about what was asked.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

if TYPE_CHECKING:
    from json import JSONDecoder

RequestId = int | str

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

Members = dict[str, Raw]


class Request(msgspec.Struct, frozen=True, tag=True):
    id: RequestId
    method: str
    params: Raw | None = None
    extra: Members = {}


class Notification(msgspec.Struct, frozen=True, tag=True):
    method: str
    params: Raw | None = None
    extra: Members = {}


class Response(msgspec.Struct, frozen=True, tag=True):
    """Exactly one of `result` and `error` is there; the id is None where the peer could not read ours."""

    id: RequestId | None
    result: Raw | None = None
    error: Raw | None = None
    extra: Members = {}


class Malformed(msgspec.Struct, frozen=True, tag=True):
    """Bytes that are not one JSON-RPC message, with the id where one can still be read."""

    reason: str
    code: int = INVALID_REQUEST
    id: RequestId | None = None
    is_response: bool = False


Message = Request | Notification | Response | Malformed

_members = msgspec.json.Decoder(Members)
_text = msgspec.json.Decoder(str)
_any = msgspec.json.Decoder()
_encode = msgspec.json.encode

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_HEAD_ID = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.){0,512}")\s*,'
)
_TAIL_ID = re.compile(
    rb',\s*"id"\s*:\s*(-?\d+|"(?:[^"\\]|\\.){0,512}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


class DuplicateMember(ValueError):
    """An object names the same member twice."""


def members(raw: bytes | Raw) -> Members:
    """The members of an object as raw bytes. Raises ValueError for anything that is not one clear object."""
    try:
        found = _members.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    # A compact object is exactly as long as its members; only a longer one can hide a duplicate.
    length = 1 + len(found) if found else 2
    for key, value in found.items():
        length += len(key) + 3 + len(memoryview(value))
    if length != len(memoryview(raw)):
        _refuse_duplicates(bytes(raw))
    return found


def members_if_clear(raw: Raw | None) -> Members:
    """The same for whoever only looks on: no members where they are not clear."""
    try:
        return members(raw) if raw is not None else {}
    except ValueError:
        return {}


def text_if_clear(raw: Raw | None) -> str | None:
    try:
        return _text.decode(raw) if raw is not None else None
    except msgspec.MsgspecError:
        return None


def _refuse_duplicates(data: bytes) -> None:
    try:
        names = _names(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if len(set(names)) != len(names):
        raise DuplicateMember(next(n for n in names if names.count(n) > 1))


def _names(text: str) -> list[str]:
    """The names of an object's members, each as often as it stands there."""
    names: list[str] = _reader().decode(text)
    return names


@cache
def _reader() -> JSONDecoder:
    """Made when it is needed: most frames are written without spaces."""
    from json import JSONDecoder

    # Numbers are not looked at, and Python refuses to read integers of more than 4,300 digits.
    return JSONDecoder(object_pairs_hook=lambda pairs: [name for name, _ in pairs], parse_int=len)


def _is_text(frame: bytes) -> bool:
    """Lone surrogates are left to the decoder, which refuses them wherever they stand."""
    if frame.isascii():
        return True
    try:
        frame.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _has_lone_surrogate(frame: bytes) -> bool:
    """Why a frame was refused, if nothing else is wrong with it."""
    if not _SURROGATE.search(frame):
        return False
    import json

    try:
        json.dumps(json.loads(frame), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def decode_id(raw: bytes | Raw) -> RequestId | None:
    """A JSON-RPC id, or None for anything that is not an integer or a string."""
    try:
        value = _any.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return value if type(value) is int or type(value) is str else None


def salvage_id(head: bytes, tail: bytes = b"") -> RequestId | None:
    """The id of a frame too broken or too long to decode, where it stands at a place that cannot lie.

    First member of the object, or last before the closing brace: both are outside any nested value.
    """
    match = _HEAD_ID.match(head) or _TAIL_ID.search(tail or head)
    return decode_id(match.group(1)) if match else None


def _broken(frame: bytes, reason: str, code: int = INVALID_REQUEST) -> Malformed:
    found: Members = {}
    try:
        found = _members.decode(frame)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    identity = decode_id(found["id"]) if "id" in found else salvage_id(frame[:1024], frame[-1024:])
    # What names no method can only be meant as an answer, however little of one it is.
    is_response = "method" not in found if found else b'"method"' not in frame[:512]
    return Malformed(reason, code, identity, is_response)


def decode(frame: bytes) -> Message:
    """Read one frame. Never raises: what cannot be read is `Malformed`."""
    if not _is_text(frame):
        return _broken(frame, "invalid UTF-8", PARSE_ERROR)
    try:
        found = members(frame)
    except DuplicateMember as error:
        broken = _broken(frame, f"duplicate member {str(error)[:40]!r}")
        # Two ids name no one.
        return msgspec.structs.replace(broken, id=None) if str(error) == "id" else broken
    except ValueError:
        if frame.lstrip()[:1] == b"[":
            return Malformed("batches are not part of MCP", INVALID_REQUEST)
        return _broken(
            frame, "lone surrogate" if _has_lone_surrogate(frame) else "not valid JSON", PARSE_ERROR
        )
    return _classify(frame, found)


def _classify(frame: bytes, found: Members) -> Message:
    version = found.pop("jsonrpc", None)
    if version is None or bytes(version) != b'"2.0"':
        return _broken(frame, 'jsonrpc must be "2.0"')
    raw_id = found.pop("id", None)
    raw_method = found.pop("method", None)
    params = found.pop("params", None)
    result = found.pop("result", None)
    error = found.pop("error", None)
    if raw_method is not None:
        if result is not None or error is not None:
            return _broken(frame, "a request carries no result")
        try:
            method = _text.decode(raw_method)
        except msgspec.MsgspecError:
            return _broken(frame, "method must be a string")
        if not method:
            return _broken(frame, "method must not be empty")
        if params is not None:
            first = bytes(memoryview(params)[:1])
            if first == b"n":
                params = None
            elif first != b"{":
                return _broken(frame, "params must be an object", INVALID_PARAMS)
        if raw_id is None:
            return Notification(method, params, found)
        identity = decode_id(raw_id)
        if identity is None:
            return _broken(frame, "id must be a string or an integer")
        return Request(identity, method, params, found)
    if (result is None) == (error is None):
        return _broken(frame, "neither a request nor a response")
    if raw_id is None:
        return _broken(frame, "a response needs an id")
    if result is not None and bytes(memoryview(result)[:1]) != b"{":
        return _broken(frame, "result must be an object")
    return Response(decode_id(raw_id), result, error, found)


def _object(*parts: bytes | memoryview | Raw, extra: Members | None) -> bytes:
    """An object: the given parts of it without its closing brace, then what JSON-RPC does not name."""
    pieces = [memoryview(part) for part in parts]
    for key, value in (extra or {}).items():
        pieces += (memoryview(b"," + _encode(key) + b":"), memoryview(value))
    return b"".join((*pieces, b"}"))


def encode_request(
    identity: RequestId, method: str, params: Raw | bytes | Members | None, extra: Members | None = None
) -> bytes:
    head = b'{"jsonrpc":"2.0","id":' + _encode(identity) + b',"method":' + _encode(method)
    if params is None:
        return _object(head, extra=extra)
    inner = _pieces(params) if isinstance(params, dict) else [memoryview(params)]
    return _object(head, b',"params":', *inner, extra=extra)


def encode_notification(method: str, params: Raw | bytes | None, extra: Members | None = None) -> bytes:
    head = b'{"jsonrpc":"2.0","method":' + _encode(method)
    return _object(*(head,) if params is None else (head, b',"params":', params), extra=extra)


def encode_result(identity: RequestId, result: Raw | bytes, extra: Members | None = None) -> bytes:
    return _object(b'{"jsonrpc":"2.0","id":', _encode(identity), b',"result":', result, extra=extra)


def encode_raw_error(identity: RequestId | None, error: Raw | bytes, extra: Members | None = None) -> bytes:
    return _object(b'{"jsonrpc":"2.0","id":', _encode(identity), b',"error":', error, extra=extra)


def encode_error(identity: RequestId | None, code: int, message: str, data: object = None) -> bytes:
    error: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode_raw_error(identity, _encode(error))


def encode_members(found: Members) -> Raw:
    """An object from raw members, in order."""
    return Raw(joined(found))


def joined(found: Members) -> bytes:
    """The same as bytes."""
    return b"".join(_pieces(found))


def _pieces(found: Members) -> list[bytes | memoryview]:
    pieces: list[bytes | memoryview] = []
    for key, value in found.items():
        pieces += (b",", _encode(key), b":", memoryview(value))
    return [b"{", *pieces[1:], b"}"]
