"""Frames that are almost right: valid JSON-RPC bent in one place, and the judge of what must be answered.

A frame is bent as a tree (a member gone, twice, of another type, nested too deeply) or as bytes (bits flipped,
cut, glued, not UTF-8). Every frame has an id of its own, far from any other, so that no accident of a
mutation can name another request. The standard library only: the judge must not share the host's parser.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

Object = dict[str, Any]
Corpus = Sequence[Callable[[str], Object]]

_DEEP: Final = (10, 100, 600, 5_000, 12_000)
_NUMBERS: Final = (
    b"0",
    b"-0",
    b"-1",
    b"1.5",
    b"1e3",
    b"1e999",
    b"-1e-999",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"0x10",
)
_HUGE: Final = (str(2**63).encode(), str(2**64).encode(), str(-(2**63) - 1).encode(), b"9" * 400)
_WORDS: Final = (b"null", b"true", b"false", b"NaN", b"Infinity", b"-Infinity", b"nul", b"True", b"undefined")
_TEXTS: Final = (
    rb'"\ud800"',
    rb'"\udfff\ud800"',
    rb'"\ud83d\ude00"',
    rb'"\u0000"',
    rb'"\x41"',
    b'"\x01"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'""',
    b'"2.0"',
    b"'single'",
    b'"open',
)
_SHAPES: Final = (b"[]", b"{}", b"[null]", b'{"":""}', b'{"a":1,"a":2}', b"[1,]", b"{,}", b"")
_ODD_BYTES: Final = (
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\x1b[0m",
    b"\r",
    b"\n",
    b"\x0b",
    b"\\",
    b'"',
    b"}",
)
_BOM: Final = b"\xef\xbb\xbf"


_OWN: Final = re.compile(r"z[0-9a-f]{16}")


def own_id(rng: random.Random) -> str:
    return f"z{rng.getrandbits(64):016x}"


class Token(bytes):
    """JSON text, or what should be, to stand in a tree as it is."""


class Pairs(list[tuple[str, Any]]):
    """An object that may name a member twice."""


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, _pairs(member)) for key, member in value.items())
    return [_pairs(item) for item in value] if isinstance(value, list) else value


class Mutator:
    """Endless frames from a corpus. `limit` is the host's bound on a frame."""

    def __init__(self, rng: random.Random, corpus: Corpus, limit: int) -> None:
        self._rng = rng
        self._corpus = corpus
        self._limit = limit

    def line(self) -> bytes:
        """The bytes of a frame with the end of its line, or of several where a newline got into it."""
        rng = self._rng
        tree = _pairs(rng.choice(self._corpus)(own_id(rng)))
        kind = rng.random()
        if kind < 0.2:
            return self._text(tree) + rng.choice((b"\n", b"\n", b"\r\n", b"\n\n", b" \n"))
        if kind < 0.65:
            for _ in range(rng.choice((1, 1, 1, 2, 3))):
                self._bend(tree)
            return self._text(tree) + b"\n"
        return self._break(self._text(tree)) + b"\n"

    # As a tree

    def _bend(self, frame: Pairs) -> None:
        rng = self._rng
        places = [frame]
        for _ in range(rng.choice((0, 0, 1, 2, 3))):
            places += [m for _, m in places[-1] if isinstance(m, Pairs)][:1]
        place = places[-1]
        if not place:
            place.append(("x", None))
        at = rng.randrange(len(place))
        name, value = place[at]
        match rng.randrange(8):
            case 0:
                del place[at]
            case 1:
                place.insert(rng.randrange(len(place) + 1), (name, rng.choice((value, self._odd_value()))))
            case 2:
                place[at] = (
                    rng.choice((name.upper(), name + " ", "", "id", "result", "error", "method")),
                    value,
                )
            case 3:
                place[at] = (name, [value])
            case 4:
                place.append((rng.choice(("x-extra", "id", "_meta", "params")), self._odd_value()))
            case _:
                place[at] = (name, self._odd_value())

    def _odd_value(self) -> Token:
        rng = self._rng
        match rng.randrange(24):
            case 0:
                deep = rng.choice(_DEEP)
                return Token(b"[" * deep + b"]" * deep)
            case 1:
                deep = rng.choice(_DEEP) // 3
                return Token(b'{"a":' * deep + b"1" + b"}" * deep)
            case 2 if rng.random() < 0.1:
                return Token(b'"' + b"x" * (self._limit + rng.randrange(self._limit)) + b'"')
            case _:
                return Token(rng.choice(rng.choice((_NUMBERS, _HUGE, _WORDS, _TEXTS, _SHAPES))))

    def _text(self, value: Any) -> bytes:
        """Compact most often; else with blanks or escapes where JSON allows them."""
        style = self._rng.random()
        if style < 0.7:
            return _dump(value, b",", b":", escaped=False)
        if style < 0.85:
            return b" " + _dump(value, b" , ", b" :\t", escaped=False)
        return _dump(value, b",", b": ", escaped=True)

    # As bytes

    def _break(self, data: bytes) -> bytes:
        rng = self._rng
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 2, 8, 64)))
        match rng.randrange(9):
            case 0:
                flipped = bytearray(data)
                for _ in range(rng.choice((1, 1, 2, 5))):
                    flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
                return bytes(flipped)
            case 1:
                return data[:at]
            case 2:
                return data[at:]
            case 3:
                return data[:at] + data[to:]
            case 4:
                return data[:to] + data[at:]
            case 5:
                return data[:at] + rng.choice(_ODD_BYTES) + data[at:]
            case 6:
                return (
                    rng.choice((_BOM, b"\x00", b"\xff\xfe", b"data: ", b"[", b"Content-Length: 10\r\n\r\n"))
                    + data
                )
            case 7:
                return data[:at] + data
            case _:
                return b"[" + data + rng.choice((b"", b"," + data)) + b"]"


def _dump(value: Any, comma: bytes, colon: bytes, *, escaped: bool) -> bytes:
    if isinstance(value, Token):
        return bytes(value)
    if isinstance(value, Pairs):
        members = [_key(k, escaped) + colon + _dump(v, comma, colon, escaped=escaped) for k, v in value]
        return b"{" + comma.join(members) + b"}"
    if isinstance(value, list):
        return b"[" + comma.join(_dump(v, comma, colon, escaped=escaped) for v in value) + b"]"
    return json.dumps(value, ensure_ascii=escaped).encode()


def _key(name: str, escaped: bool) -> bytes:
    if not escaped or not name:
        return json.dumps(name).encode()
    return b'"\\u%04x' % ord(name[0]) + json.dumps(name[1:]).encode()[1:]


# --- the judge ----------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """`request`: must be answered once under its id. `blank`: nothing. `other`: may be, may be not.

    A request under an id that a mutation put there is `other`: several frames may share it, and one may cancel it.
    """

    kind: Literal["request", "blank", "other"]
    id: str = ""


class _Refused(ValueError):
    pass


def _refuse(text: str) -> None:
    raise _Refused(text)


def judge(line: bytes, limit: int) -> Verdict:
    """What one line, without its end, is to a strict reader of JSON-RPC."""
    if not line.strip():
        return Verdict("blank")
    if len(line.removesuffix(b"\r")) >= limit:
        return Verdict("other")
    outermost: list[tuple[str, Any]] = []

    def keep(pairs: list[tuple[str, Any]]) -> Object:
        nonlocal outermost
        outermost = pairs
        found = dict(pairs)
        if len(found) != len(pairs):
            json.dumps(pairs, ensure_ascii=False).encode()  # what a later member hides must be text too
        return found

    try:
        frame = json.loads(line.decode(), object_pairs_hook=keep, parse_constant=_refuse)
        json.dumps(frame, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return Verdict("other")
    if not isinstance(frame, dict) or len(outermost) != len(frame) or _depth(line) > 50:
        return Verdict("other")
    identity, method, params = frame.get("id"), frame.get("method"), frame.get("params")
    is_named = isinstance(identity, str) and _OWN.fullmatch(identity) is not None
    is_asked = isinstance(method, str) and method != "" and frame.get("jsonrpc") == "2.0"
    is_plain = "result" not in frame and "error" not in frame and (params is None or isinstance(params, dict))
    return Verdict("request", str(identity)) if is_named and is_asked and is_plain else Verdict("other")


def _depth(line: bytes) -> int:
    """Never less than how deeply the line nests."""
    return max(line.count(b"["), line.count(b"{"))
