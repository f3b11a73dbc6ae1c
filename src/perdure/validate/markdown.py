"""Hints about Markdown: code fences and front matter that never end, conflict markers. A renderer accepts any text."""

from __future__ import annotations

import re
from typing import Final

from perdure.validate.report import Problem, warning

_FENCE: Final = re.compile(r"[ \t>]*(?:[-*+]|\d+[.)])?[ \t]*(?P<mark>`{3,}(?!.*`)|~{3,})[ \t]*(?P<info>\S*)")
_CONFLICT: Final = re.compile(r"(?:<{7}|>{7})(?: [^\s<>=].*)?")
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(?:#.*\n|\s)*[A-Za-z_][\w-]*:(?:\s|\Z)")


def check_markdown(text: str) -> list[Problem]:
    problems: list[Problem] = []
    rows = text.split("\n")
    if _FRONT_MATTER.match(text) and not any(row.rstrip() in ("---", "...") for row in rows[1:]):
        problems.append(warning(1, 1, "the front matter opened here is never closed"))
    mark, opened = "", 0
    for number, row in enumerate(rows, 1):
        fence = _FENCE.match(row)
        if mark:
            if fence and fence["mark"].startswith(mark) and not fence["info"]:
                mark = ""
        elif fence:
            mark, opened = fence["mark"], number
        elif _CONFLICT.fullmatch(row):
            problems.append(warning(number, 1, "a conflict marker"))
    if mark:
        problems.append(warning(opened, 1, "the code fence opened here is never closed"))
    return problems
