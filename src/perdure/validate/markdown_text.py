"""Markdown: a code fence or a comment that never ends, front matter that is no YAML, marks of a merge conflict.

A renderer accepts any text, so all of these are doubts.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.validate.report import Doubtful, Problem
from perdure.validate.yaml_text import check_yaml

_FENCE: Final = re.compile(r"[ \t>]*(?:[-*+]|\d+[.)])?[ \t]*(?P<mark>`{3,}(?!.*`)|~{3,})[ \t]*(?P<info>\S*)")
_COMMENT: Final = "<!--"
_CLOSED_COMMENT_OR_CODE: Final = re.compile(r"<!--.*?-->|(`+)(?!`).*?(?<!`)\1(?!`)")
_CONFLICT: Final = re.compile(r"(?:<{7}|>{7})(?: [^\s<>=].*)?")
_FRONT_MATTER: Final = re.compile(
    r"---[ \t]*\n(?P<yaml>(?:(?!---|\.\.\.)[^\n]*\n)*)(?P<end>(?:---|\.\.\.)[ \t]*(?:\n|\Z))?"
)
_KEY: Final = re.compile(r"(?:\s|#[^\n]*\n)*[A-Za-z_][\w-]*:(?:\s|\Z)")


def check_markdown(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    problems: list[Problem] = []
    skipped = 0
    front = _FRONT_MATTER.match(text)
    if front is not None and _KEY.match(front["yaml"]):
        if front["end"]:
            skipped = front[0].count("\n")
            problems += _check_front_matter(front["yaml"])
        else:
            problems.append(Problem(1, 1, "the front matter opened here is never closed"))
    problems += _check_blocks(text.split("\n"), skipped)
    if problems:
        raise Doubtful(problems)
    return []


def _check_front_matter(text: str) -> list[Problem]:
    return [
        Problem(problem.line + 1, problem.col, f"in the front matter: {problem.message}")
        for problem in check_yaml(text)
        if problem.severity == "error"
    ]


def _check_blocks(rows: list[str], skipped: int) -> list[Problem]:
    """Marks of conflicts outside of code and comments, and the block that is still open at the end."""
    problems: list[Problem] = []
    mark, opened = "", 0
    for number, row in enumerate(rows[skipped:], skipped + 1):
        fence = _FENCE.match(row)
        if mark == _COMMENT:
            mark = "" if "-->" in row else mark
        elif mark:
            if fence and fence["mark"].startswith(mark) and not fence["info"]:
                mark = ""
        elif fence:
            mark, opened = fence["mark"], number
        elif _COMMENT in _CLOSED_COMMENT_OR_CODE.sub("", row) and "`" not in row:
            mark, opened = _COMMENT, number
        elif _CONFLICT.fullmatch(row):
            problems.append(Problem(number, 1, "a mark of a merge conflict"))
    if mark:
        kind = "comment" if mark == _COMMENT else "code fence"
        problems.append(Problem(opened, 1, f"the {kind} opened here is never closed"))
    return problems
