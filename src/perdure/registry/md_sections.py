"""`mcp.md` as sections and lines, each with its place in the text; what stands in fences and comments is prose.

A section goes from its `## name` to the next heading of the first or second level. Lines end with \\n, \\r\\n or \\r.
A fence or an HTML comment that is never closed hides nothing: one slip must not take the sections after it away.
"""

from __future__ import annotations

import re

from perdure.model.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

ALLOWED: Final = "allowed commands"

_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_KEY: Final = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9_-]*)[ \t]*:(?!//)[ \t]*(.*)")
_REPLAY: Final = re.compile(
    r"[ \t]*replay[ \t]+(\S+)[ \t]*:[ \t]*((?:convergent|never|probe)\b.*)", re.IGNORECASE
)


class Line(Record):
    """A line `key: value`, the key as it is written.

    `start` and `end` are the line with its ending; the value is from `value_at` on.
    """

    key: str
    value: str
    start: int
    end: int
    value_at: int


class Section(Record):
    """`body` is where the line after the heading begins."""

    name: str
    start: int
    body: int
    end: int
    lines: tuple[Line, ...]


class Sections(Record):
    """Every server's section in order, duplicates too; and the allowed commands, None where nothing is said."""

    servers: tuple[Section, ...]
    allowed: frozenset[str] | None


class _Row(Record):
    text: str
    start: int
    end: int


def parsed(text: str) -> Sections:
    rows = _visible(text)
    marks = [(number, *found) for number, row in enumerate(rows) if (found := _heading(row)) is not None]
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
        last = next((n for n, found_level, _ in marks[at + 1 :] if found_level <= 2), len(rows))
        end = rows[last].start if last < len(rows) else len(text)
        lines = tuple(line for row in rows[number + 1 : last] if (line := _line(row)) is not None)
        servers.append(Section(name, rows[number].start, rows[number].end, end, lines))
    return Sections(tuple(servers), allowed)


def newline_of(text: str) -> str:
    """How this text ends its lines: as its first line does."""
    found = re.search(r"\r\n|\n|\r", text)
    return found[0] if found else "\n"


def _rows(text: str) -> list[_Row]:
    at = 1 if text.startswith("\ufeff") else 0
    found = []
    while at < len(text):
        match = _LINE.match(text, at)
        assert match is not None
        found.append(_Row(match[0].rstrip("\r\n"), at, match.end()))
        at = match.end()
    return found


def _visible(text: str) -> list[_Row]:
    """The lines without those in closed fences and comments."""
    rows = _rows(text)
    found: list[_Row] = []
    at = 0
    while at < len(rows):
        last = _hidden_until(rows, at)
        if last is None:
            found.append(rows[at])
            at += 1
        else:
            at = last + 1
    return found


def _hidden_until(rows: list[_Row], at: int) -> int | None:
    """The last line of a fence or comment that begins here; None where none does, or it is never closed."""
    text = rows[at].text
    fence = _FENCE.fullmatch(text)
    if fence is not None and not (fence[1][0] == "`" and "`" in fence[2]):
        for number in range(at + 1, len(rows)):
            close = _FENCE.fullmatch(rows[number].text)
            if close is not None and close[1].startswith(fence[1]) and not close[2].strip():
                return number
    elif text.lstrip(" ").startswith("<!--"):
        for number in range(at, len(rows)):
            if "-->" in rows[number].text:
                return number
    return None


def _heading(row: _Row) -> tuple[int, str] | None:
    found = _HEADING.fullmatch(row.text)
    return (len(found[1]), (found[2] or "").strip(" \t")) if found is not None else None


def _line(row: _Row) -> Line | None:
    found = _REPLAY.fullmatch(row.text)
    if found is not None:
        key = f"replay {found[1]}"
    else:
        found = _KEY.fullmatch(row.text)
        if found is None:
            return None
        key = found[1]
    return Line(key, found[2].rstrip(" \t"), row.start, row.end, row.start + found.start(2))


def _commands(rows: list[_Row]) -> list[str]:
    """One command per line; a list mark, code marks and a comment may stand around it."""
    found = (
        row.text.partition("#")[0].strip().removeprefix("- ").removeprefix("* ").strip(" `") for row in rows
    )
    return [one for one in found if one and not any(c.isspace() for c in one)]
