"""TOML by the standard parser; a string that is never closed is placed where it starts."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from perdure.validate.balance import unbalanced
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, Unsure

_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_PIECE: Final = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""+|\'\'\'(?:[^\']|\'(?!\'\'))*\'\'\'+'
    r'|(?P<loose>"""|\'\'\')|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|\'[^\'\n]*\'|\#[^\n]*|(?P<single>["\'])|(?P<mark>[\[\]{}])',
    re.S,
)
_HEADER: Final = re.compile(r"\s*\[{1,2}[\w.\"' -]+\]{1,2}\s*(?:#.*)?")
_ENTRY: Final = re.compile(r"\s*(?:[\w.\"-]+\s*=|\[)")


def check_toml(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _placed(str(error), text)
    except RecursionError:
        raise Unsure("nested too deeply to be checked") from None
    return []


def _placed(message: str, text: str) -> list[Problem]:
    lines = Lines(text)
    match = _AT.search(message)
    words = _AT.sub("", message)
    words = (
        "a line break in a string" if words == "Illegal character '\\n'" else words[:1].lower() + words[1:]
    )
    loose, marks = _pieces(text)
    if match is None or match[1] is None:
        if loose is not None:
            return _open_string(loose, lines)
        return unbalanced(marks, lines) or [Problem(*lines.end(), words)]
    found = Problem(int(match[1]), int(match[2]), words)
    if _HEADER.fullmatch(lines.row(found.line)):
        # A table begins inside an array, so the array was to end before it.
        start = lines.offset(found.line)
        if brackets := unbalanced([mark for mark in marks if mark[1] < start], lines):
            return brackets
    if "nclosed" in message:
        brackets = unbalanced(marks, lines)
        if brackets and min(p.line for p in brackets) <= found.line:
            return brackets
    return [found]


def _open_string(start: int, lines: Lines) -> list[Problem]:
    opened = lines.place(start)
    found = [Problem(*opened, "a string opened here is never closed")]
    for line in range(opened.line + 2, len(lines.rows)):
        if _ENTRY.match(lines.row(line)):
            return [
                *found,
                Problem(line - 1, 1, f"the quotes that close line {opened.line} may be missing here"),
            ]
    return found


def _pieces(text: str) -> tuple[int | None, list[tuple[str, int]]]:
    """Where the first string is left open, and the brackets outside of strings and comments."""
    marks: list[tuple[str, int]] = []
    for match in _PIECE.finditer(text):
        if match.lastgroup in ("loose", "single"):
            return match.start(), marks
        if match.lastgroup == "mark":
            marks.append((match[0], match.start()))
    return None, marks
