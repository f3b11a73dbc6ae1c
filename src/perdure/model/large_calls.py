"""A large `tools/call` taken apart in one pass: down to the members of its arguments.

Each level of an object can be read by itself (`frames.members`), which passes over all that is within it, every time.
A file's whole content in a call makes that the most of what the host does. Here all levels are read at once; whatever
is not plainly such a call, or could be read in two ways, is left to the slow way.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

LARGE: Final = 32_768
_KEY: Final = re.compile(rb'[ \t\r\n]*"([A-Za-z_][A-Za-z0-9_]*)"[ \t\r\n]*:[ \t\r\n]*')
_NEXT: Final = re.compile(rb"[ \t\r\n]*([,}])")
_START: Final = re.compile(rb"[ \t\r\n]*\{")


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    name: Raw
    arguments: dict[str, Raw]
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Raw
    id: Raw
    method: Raw
    params: _Params


class Parts(msgspec.Struct, frozen=True):
    """`members` are those of the frame, `params` those of its params, `arguments` those of their arguments."""

    members: dict[str, Raw]
    params: dict[str, Raw]
    arguments: dict[str, Raw]


class _Unclear(Exception):
    """It cannot be told here whether a member is there twice."""


_calls = msgspec.json.Decoder(_Call)
_Tree = dict[bytes, "Raw | _Tree"]
_Places = dict[str, tuple[int, int]]


def taken_apart(frame: bytes) -> Parts | None:
    """None where the frame has to be looked at more closely."""
    levels = _levels(frame)
    return Parts(*(_cut(frame, level) for level in levels)) if levels is not None else None


def _levels(frame: bytes) -> tuple[_Places, _Places, _Places] | None:
    if b'"tools/call"' not in frame[:512] and b'"tools/call"' not in frame[-512:]:
        return None
    try:
        call = _calls.decode(frame)
        tree: _Tree = {b"jsonrpc": call.jsonrpc, b"id": call.id, b"method": call.method}
        params: _Tree = {b"name": call.params.name}
        params[b"arguments"] = {name.encode(): value for name, value in call.params.arguments.items()}
        if call.params.meta is not UNSET:
            params[b"_meta"] = call.params.meta
        tree[b"params"] = params
        return _placed(frame, tree)
    except (msgspec.MsgspecError, RecursionError, _Unclear):
        return None


def _placed(frame: bytes, tree: _Tree) -> tuple[_Places, _Places, _Places]:
    """Where the members of the frame, its params and its arguments are. All of the frame must be accounted for."""
    # Nothing but what was found fits into a frame of this length: no member is there twice, and each is where it
    # must be. Else every value is compared with what stands there.
    is_compact = _length(tree) == len(frame)
    found: list[_Places] = []
    end = _walk(frame, 0, tree, is_compact, found)
    if frame[end:].strip(b" \t\r\n"):
        raise _Unclear
    return found[0], found[1], found[2]


def _walk(frame: bytes, at: int, level: _Tree, is_compact: bool, found: list[_Places]) -> int:
    """Past an object that begins here. What is in it is added to what was found."""
    places: _Places = {}
    found.append(places)
    start = _START.match(frame, at)
    if start is None or not level:
        raise _Unclear
    at, follows = start.end(), b","
    while follows == b",":
        key = _KEY.match(frame, at)
        if key is None or key[1] not in level or (name := key[1].decode()) in places:
            raise _Unclear
        value = level[key[1]]
        if isinstance(value, dict):
            end = _walk(frame, key.end(), value, is_compact, found)
        else:
            end = _passed(frame, key.end(), value, is_compact)
        places[name] = (key.end(), end)
        after = _NEXT.match(frame, end)
        if after is None:
            raise _Unclear
        at, follows = after.end(), after[1]
    if len(places) != len(level):
        raise _Unclear
    return at


def _passed(frame: bytes, at: int, value: Raw, is_compact: bool) -> int:
    if not (is_compact or frame.startswith(bytes(value), at)):
        raise _Unclear
    return at + len(memoryview(value))


def _length(tree: _Tree) -> int:
    """The bytes of an object without any white space."""
    length = 1 + len(tree) if tree else 2
    for name, value in tree.items():
        length += len(name) + 3 + (_length(value) if isinstance(value, dict) else len(memoryview(value)))
    return length


def _cut(frame: bytes, places: _Places) -> dict[str, Raw]:
    whole = memoryview(frame)
    return {name: Raw(whole[start:end]) for name, (start, end) in places.items()}
