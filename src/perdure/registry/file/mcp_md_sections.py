"""`mcp.md` as sections and lines, each with its offset; fences and HTML comments are prose.

A section reaches from its `## name` to the next heading of the first or second level. Lines end with \\n, \\r\\n or \\r.
A fence or a comment that is never closed hides nothing, so that a typo does not remove the sections after it.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

ALLOWED: Final = "allowed commands"
KEY: Final = r"[A-Za-z][A-Za-z0-9_-]*"
_LINE: Final = re.compile(r"([^\r\n]*)(?:\r\n|\n|\r|$)")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_KEY: Final = re.compile(rf"[ \t]*({KEY})[ \t]*:(?!//)[ \t]*(.*)")
_REPLAY: Final = re.compile(
    r"[ \t]*replay[ \t]+(\S+)[ \t]*:[ \t]*((?:convergent|never|probe)\b.*)", re.IGNORECASE
)  # the name of a tool may hold colons


class Line(msgspec.Struct, frozen=True):
    """A line `key: value`, the key as it is written.

    `start` and `end` include the line ending; the value begins at `value_at`.
    """

    key: str
    value: str
    start: int
    end: int
    value_at: int


class _Row(NamedTuple):
    """One line."""

    text: str
    start: int
    end: int


class Section(msgspec.Struct, frozen=True, dict=True):
    """`body` is where the line after the heading begins."""

    name: str
    start: int
    body: int
    end: int
    rows: list[_Row]

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines `key: value`; parsed on demand, since most sections are only listed."""
        return tuple(line for row in self.rows if (line := _line(row)) is not None)


class Sections(msgspec.Struct, frozen=True):
    """The sections of servers in order, duplicates included; and the allowed commands, None if there is no list."""

    servers: tuple[Section, ...]
    allowed: frozenset[str] | None


def parse_sections(text: str) -> Sections:
    rows = _visible(text)
    marks = [
        (number, *heading)
        for number, row in enumerate(rows)
        if "#" in row.text[:4] and (heading := _heading(row)) is not None
    ]
    servers: list[Section] = []
    allowed: frozenset[str] | None = None
    for at, (number, level, name) in enumerate(marks):
        if level != 2:
            continue
        if name.lower() == ALLOWED:
            last = marks[at + 1][0] if at + 1 < len(marks) else len(rows)
            named = frozenset(_commands(rows[number + 1 : last]))
            allowed = named if allowed is None else allowed & named
            continue
        last = next((marks[n][0] for n in range(at + 1, len(marks)) if marks[n][1] <= 2), len(rows))
        end = rows[last].start if last < len(rows) else len(text)
        servers.append(Section(name, rows[number].start, rows[number].end, end, rows[number + 1 : last]))
    return Sections(tuple(servers), allowed)


def newline_of(text: str) -> str:
    """The line ending of the first line."""
    ending = re.search(r"\r\n|\n|\r", text)
    return ending[0] if ending else "\n"


def _rows(text: str) -> list[_Row]:
    start = 1 if text.startswith("\ufeff") else 0
    return [_Row(line[1], line.start(), line.end()) for line in _LINE.finditer(text, start) if line[0]]


def _visible(text: str) -> list[_Row]:
    """The lines without those in closed fences and comments."""
    rows = _rows(text)
    closings = _Closings(rows)
    visible: list[_Row] = []
    at = 0
    while at < len(rows):
        last = closings.after(at)
        if last is None:
            visible.append(rows[at])
            at += 1
        else:
            at = last + 1
    return visible


class _Closings:
    """Finds the end of fences and comments. A mark that is never closed is searched for once."""

    def __init__(self, rows: list[_Row]) -> None:
        self._rows = rows
        self._never: set[str] = set()

    def after(self, at: int) -> int | None:
        """The last line of a fence or comment that begins here; None if none does, or it is never closed."""
        text = self._rows[at].text
        fence = _FENCE.fullmatch(text)
        if fence is not None and not (fence[1][0] == "`" and "`" in fence[2]):
            return self._search(fence[1], at + 1)
        return self._search("-->", at) if text.lstrip(" ").startswith("<!--") else None

    def _search(self, mark: str, start: int) -> int | None:
        if any(mark.startswith(unclosed) for unclosed in self._never):
            return None
        for number in range(start, len(self._rows)):
            if _closes(mark, self._rows[number].text):
                return number
        self._never.add(mark)
        return None


def _closes(mark: str, text: str) -> bool:
    if mark == "-->":
        return mark in text
    fence = _FENCE.fullmatch(text)
    return fence is not None and fence[1].startswith(mark) and not fence[2].strip()


def _heading(row: _Row) -> tuple[int, str] | None:
    """The level and the text. Not by a pattern, whose backtracking would be quadratic in blanks."""
    shown = row.text.lstrip(" ")
    rest = shown.lstrip("#")
    level = len(shown) - len(rest)
    if not 1 <= level <= 6 or len(row.text) - len(shown) > 3 or rest[:1] not in ("", " ", "\t"):
        return None
    title = rest.strip(" \t")
    open_title = title.rstrip("#")
    return level, open_title.rstrip(" \t") if open_title.endswith((" ", "\t")) else title


def _line(row: _Row) -> Line | None:
    match = _REPLAY.fullmatch(row.text) or _KEY.fullmatch(row.text)
    if match is None:
        return None
    key = match[1] if match.re is _KEY else f"replay {match[1]}"
    return Line(key, match[2].rstrip(" \t"), row.start, row.end, row.start + match.start(2))


def is_key(text: str) -> bool:
    return re.fullmatch(KEY, text) is not None


def _commands(rows: list[_Row]) -> list[str]:
    """One command per line; a list mark, code marks and a comment are stripped."""
    words = (
        row.text.partition("#")[0].strip().removeprefix("- ").removeprefix("* ").strip(" `") for row in rows
    )
    return [word for word in words if word and not any(c.isspace() for c in word)]
