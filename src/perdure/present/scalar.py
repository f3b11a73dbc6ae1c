"""One value as text that cannot be mistaken for another: bare where that is clear, else a JSON string.

    a value that starts with a quote    is a JSON string
    a lone -                            is an absent value
    an ellipsis after the last quote    marks a cut, with how much is missing and which argument shows it

Every character that is not printable (controls, bidirectional marks, lone surrogates) is written as an escape: what a
reader sees is what is there. An ellipsis inside a value is shown as it is.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Place = Literal["atom", "line", "cell"]
"""Where a scalar stands: between two spaces, alone to the end of its line, or between bars."""

ABSENT: Final = "-"
ELLIPSIS: Final = "…"

# Printable characters that are escaped; the backslash first, since every escape contains one.
_MARKS: Final = (("\\", "\\\\"), ('"', '\\"'), ("|", "\\u007c"))
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def scalar(value: Any, place: Place = "line", limit: int = 400, more: str = "") -> str:
    """A value of any type as one bounded scalar. `more` is the argument that shows what is cut off here."""
    if type(value) is str:  # most are
        return text(value, place, limit, more)
    match value:
        case None:
            return ABSENT
        case bool():
            return "true" if value else "false"
        case int() | float():
            return clipped(str(value), limit, more)
        case str():
            return text(value, place, limit, more)
        case _:
            return clipped(json_text(value), limit, more)


def text(value: str, place: Place = "line", limit: int = 400, more: str = "") -> str:
    """A string: bare where it reads back as itself, else quoted; what does not fit is counted."""
    shown = value if _is_bare(value, place) else quoted(value)
    return shown if len(shown) <= limit else _truncated(value, limit, more)


def _is_bare(value: str, place: Place) -> bool:
    if not value or value == ABSENT or not value.isprintable() or value != value.strip():
        return False
    # An ellipsis before a space could be taken for the mark of a cut.
    if '"' in value or "\\" in value or f"{ELLIPSIS} " in value:
        return False
    match place:
        case "atom":
            return " " not in value
        case "cell":
            return "|" not in value
        case "line":
            return True


def quoted(value: str) -> str:
    """A JSON string of printable characters, without bars of its own."""
    return '"' + escaped(value) + '"'


def escaped(value: str) -> str:
    if not value.isprintable():
        return "".join(map(_escape, value))
    for mark, written in _MARKS:
        if mark in value:
            value = value.replace(mark, written)
    return value


def one_line(value: str) -> str:
    """A sentence on one line: only characters that are not printable are escaped."""
    return value if value.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in value)


def _escape(char: str) -> str:
    if (short := _SHORT.get(char)) is not None:
        return short
    if char.isprintable() and char != "|":
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def cut_mark(missing: int, noun: str, more: str) -> str:
    """How much is left out, and the argument that shows it."""
    return f"{ELLIPSIS} {missing:,} more {noun}{'' if missing == 1 else 's'}{f': {more}' if more else ''}"


def _marks(missing: int, more: str) -> tuple[str, ...]:
    """Marks of a cut, the most telling first."""
    return cut_mark(missing, "character", more), f"{ELLIPSIS} +{missing:,}", ELLIPSIS


def _truncated(value: str, limit: int, more: str) -> str:
    """As much of a string as fits, as a JSON string, then the mark of the cut."""
    marks = _marks(len(value), more)
    kind = next((kind for kind, mark in enumerate(marks) if len(mark) + 2 <= limit), None)
    if kind is None:
        return ELLIPSIS[: max(limit, 1)]
    room = limit - len(marks[kind]) - 2
    kept: list[str] = []
    for char in value:
        piece = _escape(char)
        if len(piece) > room:
            break
        kept.append(piece)
        room -= len(piece)
    return f'"{"".join(kept)}"{_marks(len(value) - len(kept), more)[kind]}'


def clipped(line: str, limit: int, more: str = "") -> str:
    """A finished line cut to `limit` characters, the cut marked and counted where there is room."""
    if len(line) <= limit:
        return line
    for kind, mark in enumerate(_marks(len(line), more)):
        if len(mark) < limit:
            kept = limit - len(mark)
            return line[:kept] + _marks(len(line) - kept, more)[kind]
    return line[: max(limit - 1, 0)] + ELLIPSIS


def encoded_json(value: Any) -> bytes:
    """Compact JSON as it is sent, lone surrogates spelled out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(printable(value))


def json_text(value: Any) -> str:
    """Compact JSON of printable characters. Bars stand only inside its strings, so escaping them is safe."""
    return _on_one_line(encoded_json(value).decode())


def compact_json(value: str) -> str:
    """JSON that is text already, on one line and otherwise as it is: its numbers keep their digits."""
    try:
        return _on_one_line(msgspec.json.format(value, indent=-1))
    except msgspec.DecodeError:
        return text(value, "cell", len(value) * 12 + 2)


def _on_one_line(encoded: str) -> str:
    if encoded.isprintable() and "|" not in encoded:
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
