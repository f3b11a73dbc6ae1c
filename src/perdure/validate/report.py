"""The result of a check: problems with their positions, and the report around them.

| the content is | `valid` | `errors` |
|---|---|---|
| read by an exact parser | true | nothing, or warnings |
| refused by an exact parser | false | errors |
| refused by a grammar that may be wrong | null | warnings |
| not checked | null | nothing; the reason is in `summary` |

A message may be shown to others, so it names punctuation, keywords and short plain names of the content at most,
never its strings or numbers (`quote_token`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning"]

UNKNOWN: Final = "unknown"
MAX_PROBLEMS: Final = 50

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

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z_-]{0,23}|[^\w\s\"'`]{1,3}")


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
    errors: list[Problem]
    summary: str


class CannotCheck(Exception):
    """Raised by a checker that cannot judge the content, with the reason."""


class Doubtful(Exception):
    """Raised by a checker whose findings may be false: its grammar is older than the language, or of another dialect."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = [warning(problem.line, problem.col, problem.message) for problem in problems]


def warning(line: int, col: int, message: str) -> Problem:
    return Problem(line, col, message, "warning")


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
    """The report of an exact check: valid unless a problem is an error."""
    ordered = _by_importance(problems)
    is_valid = all(problem.severity == "warning" for problem in ordered)
    title = f"valid {TITLES[form]}" if is_valid else TITLES[form]
    return Report(is_valid, form, _listed(ordered), _summary(title, ordered))


def report_doubtful(form: str, problems: Iterable[Problem]) -> Report:
    ordered = _by_importance(problems)
    return Report(None, form, _listed(ordered), _summary(f"perhaps not valid {TITLES[form]}", ordered))


def report_unchecked(form: str, reason: str) -> Report:
    return Report(None, form, [], f"{TITLES[form]}: {reason}")


def report_unknown() -> Report:
    return Report(None, UNKNOWN, [], "unknown format: not checked")


def _by_importance(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(set(problems), key=lambda p: (p.severity != "error", p.line, p.col, p.message))


def _listed(ordered: list[Problem]) -> list[Problem]:
    return sorted(ordered[:MAX_PROBLEMS], key=lambda p: (p.line, p.col, p.message))


def _summary(title: str, ordered: list[Problem]) -> str:
    if not ordered:
        return title
    errors = sum(problem.severity == "error" for problem in ordered)
    counts = ((errors, "error"), (len(ordered) - errors, "warning"))
    counted = ", ".join(f"{number} {word}{'s' * (number > 1)}" for number, word in counts if number)
    return f"{title}: {counted}; line {ordered[0].line}: {ordered[0].message}"
