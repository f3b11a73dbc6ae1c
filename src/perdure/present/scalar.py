"""One value as text that cannot be mistaken for another: bare where that is clear, else a JSON string.

    a value that starts with a quote   is a JSON string
    a lone -                           is an absent value
    an ellipsis                        always and only marks something left out

So `…` inside a value is written as an escape, and so is every character that is not printable (controls,
bidirectional marks, lone surrogates): what a reader sees is what is there. Only a fenced block, which is
exact, may hold an ellipsis of its own.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Place = Literal["atom", "line", "cell"]
"""Where a scalar stands: between two spaces, alone to the end of its line, or between bars."""

ABSENT: Final = "-"
ELLIPSIS: Final = "…"

# What is printable and yet written otherwise; the backslash first, since it is in all the others.
_MARKS: Final = (("\\", "\\\\"), ('"', '\\"'), ("|", "\\u007c"), (ELLIPSIS, "\\u2026"))
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def scalar(value: Any, place: Place = "line", limit: int = 400) -> str:
    """A value of any type as one bounded scalar."""
    if type(value) is str:  # most are
        return text(value, place, limit)
    match value:
        case None:
            return ABSENT
        case bool():
            return "true" if value else "false"
        case int() | float():
            return clipped(str(value), limit)
        case str():
            return text(value, place, limit)
        case _:
            return clipped(json_text(value), limit)


def text(value: str, place: Place = "line", limit: int = 400) -> str:
    """A string: bare where it reads back as itself, else quoted; what does not fit is counted."""
    shown = value if _is_bare(value, place) else quoted(value)
    return shown if len(shown) <= limit else _truncated(value, limit)


def _is_bare(value: str, place: Place) -> bool:
    if not value or value == ABSENT or not value.isprintable() or value != value.strip():
        return False
    if '"' in value or "\\" in value or ELLIPSIS in value:
        return False
    match place:
        case "atom":
            return " " not in value
        case "cell":
            return "|" not in value
        case "line":
            return True


def quoted(value: str) -> str:
    """A JSON string of printable characters, without bars or ellipses of its own."""
    return '"' + escaped(value) + '"'


def escaped(value: str) -> str:
    if not value.isprintable():
        return "".join(map(_escape, value))
    for mark, written in _MARKS:
        if mark in value:
            value = value.replace(mark, written)
    return value


def one_line(value: str) -> str:
    """A sentence as it reads, on one line: only what is not printable is escaped."""
    return value if value.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in value)


def _escape(char: str) -> str:
    if (short := _SHORT.get(char)) is not None:
        return short
    if char.isprintable() and char not in "|…":
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _truncated(value: str, limit: int) -> str:
    """As much of a string as fits, still a JSON string, saying how many characters are missing."""
    for mark in (f"… +{len(value)} chars", ELLIPSIS):
        room = limit - len(mark) - 2
        if room >= 0:
            break
    else:
        return ELLIPSIS[: max(limit, 1)]
    kept: list[str] = []
    for char in value:
        piece = _escape(char)
        if len(piece) > room:
            break
        kept.append(piece)
        room -= len(piece)
    if mark != ELLIPSIS:
        mark = f"… +{len(value) - len(kept)} chars"
    return '"' + "".join(kept) + mark + '"'


def clipped(line: str, limit: int) -> str:
    """A finished line cut to `limit` characters, the cut marked and counted where there is room."""
    if len(line) <= limit:
        return line
    mark = f"… +{len(line)} chars"
    if len(mark) >= limit:
        return line[: max(limit - 1, 0)] + ELLIPSIS
    kept = limit - len(mark)
    return line[:kept] + f"… +{len(line) - kept} chars"


def json_text(value: Any) -> str:
    """Compact JSON of printable characters. Bars stand only inside its strings, so escaping them is safe."""
    try:
        encoded = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(printable(value)).decode()
    if encoded.isprintable() and "|" not in encoded and ELLIPSIS not in encoded:
        return encoded
    return "".join(c if c in '"\\' else _escape(c) for c in encoded)


def printable(value: Any) -> Any:
    """A value in which lone surrogates (file names that are not UTF-8) are spelled out as `\\udcXX`."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {printable(key): printable(item) for key, item in value.items()}
        case list() | tuple():
            return [printable(item) for item in value]
        case _:
            return value
