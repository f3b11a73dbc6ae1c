"""The result of a check: problems with their positions, and the report around them.

| the content is | `valid` | `errors` |
|---|---|---|
| accepted by an exact parser or a grammar | true | nothing, or warnings |
| rejected by an exact parser | false | errors |
| rejected by a grammar, which may be wrong | null | warnings |
| not checked | null | hints; the reason is in `summary` |

A message may be shown to others, so it names punctuation, keywords and short plain names of the content at most,
never its strings or numbers (`quote_token`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

Severity = Literal["error", "warning"]
Level = Literal["exact", "grammar", "none"]

UNKNOWN: Final = "unknown"
MAX_PROBLEMS: Final = 50

TITLES: Final = {
    "json": "JSON", "jsonc": "JSON with comments", "json5": "JSON5", "jsonl": "JSON Lines", "yaml": "YAML", "toml": "TOML",
    "xml": "XML", "python": "Python", "latex": "LaTeX", "c": "C", "cpp": "C++", "css": "CSS", "go": "Go", "html": "HTML",
    "java": "Java", "javascript": "JavaScript", "php": "PHP", "ruby": "Ruby", "rust": "Rust", "shell": "shell",
    "sql": "SQL", "tsx": "TSX", "typescript": "TypeScript", "markdown": "Markdown", UNKNOWN: "unknown format",
}  # fmt: skip
_EXACT: Final = ("json", "jsonc", "json5", "jsonl", "yaml", "toml", "xml", "python", "latex")
LEVELS: Final[dict[str, Level]] = {
    form: "exact" if form in _EXACT else "none" if form in ("markdown", UNKNOWN) else "grammar"
    for form in TITLES
}

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_-]{0,23}|[^\w\s\"'`]{1,3}")
_TEMPLATE: Final = re.compile(r"(?<!\$)\{\{[-~]?\s*[\w.$#/][^{}\n]*\}\}|\{%|<%")
_TEMPLATE_LINE: Final = re.compile(r"^\s*(?:\{\{|\{%|<%)", re.M)


class Problem(msgspec.Struct, frozen=True):
    """One finding; lines and columns count from 1."""

    line: int
    col: int
    message: str
    severity: Severity = "error"


class Report(msgspec.Struct, frozen=True):
    """The outcome of one check."""

    valid: bool | None
    format: str
    level: Level
    errors: list[Problem]
    summary: str


class CannotCheck(Exception):
    """Raised by a checker that cannot judge the content, with the reason and what it noticed nevertheless."""

    def __init__(self, reason: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(reason)
        self.problems = [warning(problem.line, problem.col, problem.message) for problem in problems]


class Position(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    col: int


class Lines:
    """The lines of a text, by offset and by number."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._end = len(text.rstrip())

    def position(self, offset: int) -> Position:
        """The position of an offset; the end of the last line with text for one that is further."""
        offset = min(offset, self._end)
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    def at(self, line: int, col: int) -> Position:
        """A position that a parser gave, within the text."""
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        end = self.text.find("\n", start)
        width = (end if end >= 0 else len(self.text)) - start
        return self.position(start + min(max(col, 1) - 1, width))


def warning(line: int, col: int, message: str) -> Problem:
    return Problem(line, col, message, "warning")


def is_template(text: str, line: int) -> bool:
    """Whether template commands stand on lines of their own, or one is next to this line."""
    near = "\n".join(text.split("\n")[max(0, line - 2) : line + 1])
    return bool(_TEMPLATE_LINE.search(text) or _TEMPLATE.search(near))


def quote_token(token: str) -> str:
    """A token as a message may show it: itself if it is punctuation or a plain word, else its kind."""
    if not token:
        return "the end of the file"
    if token == "\n":
        return "the end of the line"
    if _PLAIN.fullmatch(token):
        return f"'{token}'"
    if token[0] in "\"'`":
        return "a string" if len(token) > 1 else "a quote"
    if token[0].isdigit():
        return "a number"
    return "a name" if token[0].isalpha() else "text"


def report_checked(form: str, problems: Iterable[Problem]) -> Report:
    level = LEVELS[form]
    ordered = sorted(set(problems), key=lambda p: (p.severity != "error", p.line, p.col, p.message))
    valid: bool | None = True
    title = f"valid {TITLES[form]}"
    if any(problem.severity == "error" for problem in ordered):
        valid, title = False, TITLES[form]
    elif level != "exact" and (ordered or level == "none"):
        valid, title = (
            None,
            f"perhaps not valid {TITLES[form]}" if ordered else f"{TITLES[form]}: not checked",
        )
    listed = sorted(ordered[:MAX_PROBLEMS], key=lambda p: (p.line, p.col, p.message))
    return Report(valid, form, level, listed, _summary(title, ordered))


def report_unchecked(form: str, reason: str, problems: Iterable[Problem] = ()) -> Report:
    return Report(None, form, LEVELS[form], list(problems), f"{TITLES[form]}: {reason}")


def _summary(title: str, ordered: list[Problem]) -> str:
    if not ordered:
        return title
    errors = sum(problem.severity == "error" for problem in ordered)
    counts = ((errors, "error"), (len(ordered) - errors, "warning"))
    counted = ", ".join(f"{number} {word}{'s' * (number > 1)}" for number, word in counts if number)
    return f"{title}: {counted}; line {ordered[0].line}: {ordered[0].message}"
