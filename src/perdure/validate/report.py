"""What a check says: problems with their places, and the report around them.

A message may end up in an error that others read, so it names punctuation, keywords and short plain names
of the content at most, never its strings or numbers (`shown`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning"]

UNKNOWN: Final = "unknown"
SHOWN_PROBLEMS: Final = 50

TITLES: Final = {
    "json": "JSON",
    "jsonc": "JSON with comments",
    "json5": "JSON5",
    "jsonl": "JSON lines",
    "yaml": "YAML",
    "toml": "TOML",
    "xml": "XML",
    "python": "Python",
    "latex": "LaTeX",
    "markdown": "Markdown",
    "html": "HTML",
    "css": "CSS",
    "javascript": "JavaScript",
    "typescript": "TypeScript",
    "tsx": "TSX",
    "go": "Go",
    "rust": "Rust",
    "java": "Java",
    "c": "C",
    "cpp": "C++",
    "shell": "shell",
    "sql": "SQL",
}

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z_-]{0,23}|[^\w\s\"'`]{1,3}")


class Unsure(Exception):
    """Raised by a checker that cannot say whether the content is right, with the reason."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, where a person would put it right; lines and columns count from 1."""

    line: int
    col: int
    message: str
    severity: Severity = "error"


class Report(msgspec.Struct, frozen=True):
    """The outcome of one check. `valid` is None where nothing can be said."""

    valid: bool | None
    format: str
    errors: list[Problem]
    summary: str


def warning(line: int, col: int, message: str) -> Problem:
    return Problem(line, col, message, "warning")


def shown(token: str) -> str:
    """A token as a message may show it: itself if it is punctuation or a plain word, else what it is."""
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


def judged(form: str, problems: Iterable[Problem]) -> Report:
    """The report on a format that was checked: valid unless something is an error."""
    ordered = sorted(set(problems), key=lambda p: (p.severity != "error", p.line, p.col, p.message))
    errors = sum(p.severity == "error" for p in ordered)
    listed = sorted(ordered[:SHOWN_PROBLEMS], key=lambda p: (p.line, p.col, p.message))
    return Report(errors == 0, form, listed, _summary(form, ordered, errors))


def unjudged(form: str, reason: str) -> Report:
    """The report on something that could not be checked, and why."""
    return Report(None, form, [warning(1, 1, reason)], f"{TITLES.get(form, form)}: {reason}")


def unknown() -> Report:
    return Report(None, UNKNOWN, [], "unknown format: not checked")


def _summary(form: str, ordered: list[Problem], errors: int) -> str:
    title = TITLES[form]
    warnings = len(ordered) - errors
    if not ordered:
        return f"valid {title}"
    counts = ", ".join(_count(n, word) for n, word in ((errors, "error"), (warnings, "warning")) if n)
    first = ordered[0]
    verdict = title if errors else f"valid {title}"
    return f"{verdict}: {counts}; line {first.line}: {first.message}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number > 1 else ''}"
