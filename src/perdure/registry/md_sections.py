"""`mcp.md` as sections and lines, each with its place in the text; what stands in fences and comments is prose.

A section goes from its `## name` to the next heading of the first or second level. Lines end with \\n, \\r\\n or \\r.
A fence or an HTML comment that is never closed hides nothing: one slip must not take the sections after it away.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

ALLOWED: Final = "allowed commands"
HIDING: Final = ("```", "~~~", "<!--")


class Line(msgspec.Struct, frozen=True):
    """A line `key: value`, the key as it is written.

    `start` and `end` are the line with its ending; the value is from `value_at` on.
    """

    key: str
    value: str
    start: int
    end: int
    value_at: int


class _Row:
    """One line. There are as many as the file has, so it is no more than three values."""

    __slots__ = ("end", "start", "text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text = text
        self.start = start
        self.end = end


class Section(msgspec.Struct, frozen=True, dict=True):
    """`body` is where the line after the heading begins."""

    name: str
    start: int
    body: int
    end: int
    rows: list[_Row]

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Those of the kind `key: value`. Of most sections nobody asks."""
        return tuple(line for row in self.rows if (line := _line(row)) is not None)


class Sections(msgspec.Struct, frozen=True):
    """Every server's section in order, duplicates too; and the allowed commands, None where nothing is said."""

    servers: tuple[Section, ...]
    allowed: frozenset[str] | None


def parsed(text: str) -> Sections:
    rows = _visible(text)
    marks = [
        (number, *found)
        for number, row in enumerate(rows)
        if "#" in row.text[:4] and (found := _heading(row)) is not None
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
    """How this text ends its lines: as its first line does."""
    line = text.find("\n")
    back = text.find("\r", 0, line if line >= 0 else len(text))
    return "\n" if back < 0 else "\r\n" if back + 1 == line else "\r"


def _rows(text: str) -> list[_Row]:
    at = 1 if text.startswith("\ufeff") else 0
    found = []
    # Bytes know no other ends of a line than these three.
    for data in text[at:].encode("utf-8", "surrogatepass").splitlines(keepends=True):
        line = data.decode("utf-8", "surrogatepass")
        found.append(_Row(line.rstrip("\r\n"), at, at + len(line)))
        at += len(line)
    return found


def _visible(text: str) -> list[_Row]:
    """The lines without those in closed fences and comments."""
    rows = _rows(text)
    if not any(mark in text for mark in HIDING):
        return rows
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
    if not text.lstrip(" ").startswith(HIDING):
        return None
    fence = _fence(text)
    if fence is not None and not (fence[0][0] == "`" and "`" in fence[1]):
        for number in range(at + 1, len(rows)):
            close = _fence(rows[number].text)
            if close is not None and close[0].startswith(fence[0]) and not close[1].strip():
                return number
    elif text.lstrip(" ").startswith("<!--"):
        for number in range(at, len(rows)):
            if "-->" in rows[number].text:
                return number
    return None


def _fence(text: str) -> tuple[str, str] | None:
    """Three marks or more, and what stands behind them."""
    shown = text.lstrip(" ")
    if not shown.startswith(("```", "~~~")) or len(text) - len(shown) > 3:
        return None
    rest = shown.lstrip(shown[0])
    return shown[: len(shown) - len(rest)], rest


def _heading(row: _Row) -> tuple[int, str] | None:
    """Its level and its text, without the marks that may close it."""
    shown = row.text.lstrip(" ")
    rest = shown.lstrip("#")
    level = len(shown) - len(rest)
    if not 1 <= level <= 6 or len(row.text) - len(shown) > 3 or rest[:1] not in ("", " ", "\t"):
        return None
    title = rest.strip(" \t")
    open_title = title.rstrip("#")
    return level, open_title.rstrip(" \t") if open_title.endswith((" ", "\t")) else title


def _line(row: _Row) -> Line | None:
    key, colon, rest = row.text.partition(":")
    key = key.strip(" \t")
    if key[:7].lower() in ("replay ", "replay\t"):
        return _replay_line(row)
    if not colon or rest.startswith("//") or not is_key(key):
        return None
    return _with_value(row, key, rest)


def _replay_line(row: _Row) -> Line | None:
    """`replay TOOL: convergent`, where the tool's name may hold colons itself."""
    import re

    found = re.fullmatch(
        r"[ \t]*replay[ \t]+(\S+)[ \t]*:[ \t]*((?:convergent|never|probe)\b.*)", row.text, re.IGNORECASE
    )
    return _with_value(row, f"replay {found[1]}", found[2]) if found is not None else None


def _with_value(row: _Row, key: str, rest: str) -> Line:
    value = rest.lstrip(" \t")
    return Line(key, value.rstrip(" \t"), row.start, row.end, row.start + len(row.text) - len(value))


def is_key(text: str) -> bool:
    letters = text.replace("_", "").replace("-", "")
    return text.isascii() and text[:1].isalpha() and letters.isalnum()


def _commands(rows: list[_Row]) -> list[str]:
    """One command per line; a list mark, code marks and a comment may stand around it."""
    found = (
        row.text.partition("#")[0].strip().removeprefix("- ").removeprefix("* ").strip(" `") for row in rows
    )
    return [one for one in found if one and not any(c.isspace() for c in one)]
