"""C and C++: quotes, brackets and conditionals exactly, the rest by tree-sitter after guessing at macros."""

from __future__ import annotations

import re
import time
from typing import Final

from perdure.validate.balance import unbalanced
from perdure.validate.c_guesses import Guesser, doubted
from perdure.validate.c_macros import Macros
from perdure.validate.c_rules import bare_access, bare_namespaces, slips
from perdure.validate.c_tokens import Reading, emptied, partners, read
from perdure.validate.conflicts import marked_conflicts
from perdure.validate.cpp_angles import open_angles
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, Unsure
from perdure.validate.trees import first_stop, parse

SECONDS: Final = 1.5
_CPLUSPLUS: Final = re.compile(
    r"\bclass\s+\w|\bnamespace\b|\btemplate\s*<|\w::\w|\b(?:public|private)\s*:|~\w+\(\)\s*[{;]"
)
_OBJECTIVE: Final = re.compile(
    r"^\s*(?:@(?:import|interface|protocol|class|implementation|end)\b|#\s*import\b)", re.M
)
_HANDLES: Final = re.compile(r"\bref\s+(?:class|struct|new)\b|\b[A-Z]\w*\^\s+\w+\s*[(;]")


def check_c(text: str) -> list[Problem]:
    found = _check(("c", "cpp"), text)
    if found and _OBJECTIVE.search(text):
        raise Unsure("not checked: looks like Objective-C")
    return _of_plain_cplusplus(found, text)


def check_cpp(text: str) -> list[Problem]:
    return _of_plain_cplusplus(_check(("cpp",), text), text)


def _of_plain_cplusplus(found: list[Problem], text: str) -> list[Problem]:
    if found and _HANDLES.search(text):
        raise Unsure("not checked: looks like C++/CX")
    return found


def _check(names: tuple[str, ...], text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    reading = read(text)
    if reading.problems:
        return reading.problems
    lines = Lines(text)
    macros = Macros(text)
    found = _unmatched(reading, lines)
    if found and "__cplusplus" in text:
        other = read(text, cplusplus=True)
        if not _unmatched(other, lines):
            reading, found = other, []
    if found:
        found = [doubted(problem) for problem in found] if macros.has_brackets else found
        return bare_namespaces(reading.tokens, lines) + found
    partner = partners(reading.tokens)
    found = marked_conflicts(emptied(reading.text, reading.tokens))
    found = found or slips(reading.tokens, partner, text, lines)
    if names == ("cpp",) and not found:
        found = bare_access(reading.tokens, lines) + open_angles(reading.tokens, partner, lines)
    until = time.monotonic() + SECONDS
    name = None if found else _grammar(names, reading.text)
    if name is not None:
        found = Guesser(name, reading.text, reading.tokens, partner, macros, until).run()
    return [doubted(problem) if _is_between_branches(problem, lines) else problem for problem in found]


def _is_between_branches(problem: Problem, lines: Lines) -> bool:
    """Whether a conditional ends after the line and another starts: perhaps no compiler reads both."""
    below = (lines.row(line).lstrip() for line in range(problem.line + 1, len(lines.rows) + 1))
    first, second = next(below, ""), next(below, "")
    return first.startswith("#endif") and second.startswith("#if")


def _unmatched(reading: Reading, lines: Lines) -> list[Problem]:
    marks = [
        (token.text, token.at) for token in reading.tokens if token.kind == "mark" and token.text in "()[]{}"
    ]
    return unbalanced(marks, lines)


def _grammar(names: tuple[str, ...], text: str) -> str | None:
    """None if one of the grammars takes the text, else the one to go on with: a header may be of either."""
    if any(not parse(name, text.encode()).root_node.has_error for name in names):
        return None
    if _CPLUSPLUS.search(text) or len(names) == 1:
        return "cpp"
    stops = {name: first_stop(name, text.encode()) for name in names}
    return max(names, key=lambda name: stop.token if (stop := stops[name]) else 0)
