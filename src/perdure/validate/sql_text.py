"""SQL: quotes, comments and parentheses that are not closed, marks of a merge conflict.

Dialects differ too much for a grammar: the one of tree-sitter cannot read most files of PostgreSQL, MySQL or SQLite.
Even quoting differs, so all findings are doubts.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.validate.lines import Lines
from perdure.validate.report import Doubtful, Problem

_TOKEN: Final = r"""
    (?P<skip>
        --[^\n]*|/\*.*?\*/|(?m:^[ \t]*(?:\\|\#|REM\b|PROMPT\b|\.[a-z])[^\n]*)
        |\bcopy\b[^;]*\bfrom\s+stdin\b[^;]*;[^\n]*\n.*?^\\\.
        |\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
        |%s|"(?:[^"]|"")*"|`[^`]*`)
    |(?P<unclosed>/\*|\$(?:[^\W\d]\w*)?\$|['"`])
    |(?P<conflict>(?m:^(?:<{7}|>{7})(?:[ ][^\s<>=][^\n]*)?$))
    |(?P<parenthesis>[()])"""
# A backslash in a string is an escape in some dialects and a character in others.
_READINGS: Final = tuple(
    re.compile(_TOKEN % string, re.S | re.X | re.I | re.M)
    for string in (r"'(?:[^']|'')*'", r"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'")
)


def check_sql(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    problems: list[Problem] = []
    for reading in _READINGS:
        problems = _read(reading, text)
        if not problems:
            return []
    raise Doubtful(problems)


def _read(reading: re.Pattern[str], text: str) -> list[Problem]:
    lines = Lines(text)
    problems: list[Problem] = []
    opened: list[int] = []
    for match in reading.finditer(text):
        if match["unclosed"]:
            kind = "comment" if match[0] == "/*" else "quote"
            return [
                *problems,
                Problem(*lines.position(match.start()), f"the {kind} opened here is never closed"),
            ]
        if match["conflict"]:
            problems.append(Problem(*lines.position(match.start()), "a mark of a merge conflict"))
        elif match[0] == "(":
            opened.append(match.start())
        elif match[0] == ")" and opened:
            opened.pop()
        elif match[0] == ")":
            problems.append(Problem(*lines.position(match.start()), "')' has no '(' before it"))
    if opened:
        problems.append(Problem(*lines.position(opened[0]), "'(' is never closed"))
    return problems
